"""How a maintainer makes and renews a patch: take the files out, edit them, read the difference back.

A work folder holds the files at their paths in the wheel, and beside them HEADER, the patch's header.
"""

import datetime
import difflib
from pathlib import Path

from patches.engine.apply import FileFit, State, fit_file
from patches.engine.diff import body_start, parse_diff
from patches.engine.errors import PatchError
from patches.engine.header import parse_header
from patches.engine.judge import Verdict, judge
from patches.engine.make import make_diff
from patches.engine.series import SERIES, Patch, Series, load_series, name_fault, with_name
from patches.engine.text import split_lines
from patches.engine.wheel import Wheel
from tools.files import atomic

HEADER = "HEADER"


def start(wheel: Wheel, folder: Path, name: str, header: str, paths: list[str], target: Path) -> list[str]:
    """Begin the new patch `name`: write `header` and the files `paths`, as the series leaves them, into `target`.

    Nothing that lies in `target` is overwritten. Returns a line a file. Raises PatchError if `name` is no
    patch name or listed already, a file is not there, or a patch of the series does not apply.
    """
    if fault := name_fault(name):
        raise PatchError(fault)
    base, patch = _base(wheel, folder, name)
    if patch is not None:
        raise PatchError(f"{name}: listed in {SERIES} already: moet patch refresh {name} --edit DIR takes it out")
    files = {path: _file(wheel, base, path) for path in paths}
    return _write(target, {HEADER: header.encode("utf-8"), **files})


def start_like(wheel: Wheel, folder: Path, name: str, like: Patch, header: str, target: Path) -> list[str]:
    """Begin the new patch `name` from one for another version, with what of `like` applies here; see `start`.

    Returns a line a file, and one a hunk that is left to be done by hand.
    """
    if fault := name_fault(name):
        raise PatchError(fault)
    base, patch = _base(wheel, folder, name)
    if patch is not None:
        raise PatchError(f"{name}: listed in {SERIES} already: moet patch refresh {name} --edit DIR takes it out")
    return _write(target, {HEADER: header.encode("utf-8")}) + _take(wheel, base, like, target)


def take_out(wheel: Wheel, folder: Path, name: str, paths: list[str], target: Path) -> list[str]:
    """Write into `target` header and files of the listed patch `name`, as far as it applies, and further files `paths`.

    Files see the patches before `name`. Nothing that lies in `target` is overwritten. Returns one line for
    each file written and for each hunk left out, which is then done by hand. Raises PatchError if an
    earlier patch fails.
    """
    base, patch = _base(wheel, folder, name)
    if patch is None:
        raise PatchError(f"{name}: not listed in {SERIES}: moet patch new {name.removesuffix('.patch')} begins it")
    files = {path: _file(wheel, base, path) for path in paths if path not in patch.paths}
    lines = split_lines((folder / name).read_bytes())
    header = b"".join(lines[: body_start(lines)]).rstrip(b"\n") + b"\n"
    return _write(target, {HEADER: header}) + _take(wheel, base, patch, target) + _write(target, files)


def read_back(wheel: Wheel, folder: Path, name: str, source: Path, today: datetime.date) -> list[str]:
    """Make patch `name` anew from the edited files under `source`, and list it in the series if it is new.

    The header is that of `source`, else the patch's own; Last-Update becomes `today` where the patch changed.
    What tools leave behind (hidden files, byte code) is passed over. Returns a line that says what was done,
    and one for each fault of the header. Raises PatchError if an earlier patch fails or nothing differs.
    """
    base, patch = _base(wheel, folder, name)
    if fault := name_fault(name):
        raise PatchError(fault)
    if not source.is_dir():
        raise PatchError(f"{source}: no such folder: take the files out first")
    paths = sorted(path for path in _files(source) if path != HEADER and not any(map(_is_debris, path.split("/"))))
    if odd := [path for path in paths if not path.isascii()]:
        raise PatchError(f"{source / odd[0]}: a path in a patch must be plain ASCII: rename or remove it")
    body = b"".join(make_diff(path, _old(wheel, base, path), (source / path).read_bytes()) for path in paths)
    if not body:
        raise PatchError(f"{source}: nothing differs from {wheel.project} {wheel.version}: edit a file first")
    parse_diff(body)
    header = _header(source / HEADER)
    if patch:
        return [_renew(folder / name, body, today, header), *_faults(folder / name)]
    if header is None:
        raise PatchError(f"{source / HEADER}: a new patch needs its header there: moet patch new writes one to fill in")
    atomic.write(folder / name, b"".join(_dated(line, today) for line in header) + body)
    listing = folder / SERIES
    listed = with_name(listing.read_bytes(), name)
    atomic.write(listing, listed)
    last = listed.endswith(name.encode() + b"\n")
    return [f"{folder / name}: made and listed {'last ' if last else ''}in {SERIES}", *_faults(folder / name)]


def rebase(wheel: Wheel, folder: Path, name: str, today: datetime.date) -> str:
    """Make patch `name` anew where only its line numbers are off, or parts of it are upstream by now.

    Raises PatchError if an earlier patch fails, a hunk has no place, or nothing of the patch is left.
    """
    base, patch = _base(wheel, folder, name)
    if patch is None:
        raise PatchError(f"{name}: not listed in {SERIES}: for a new patch say --from FOLDER")
    body = b""
    for diff in patch.diffs:
        old = _old(wheel, base, diff.path)
        fit = fit_file(diff, old)
        if fit.result is None:
            raise PatchError(
                f"{name}: {diff.path} conflicts: take it out with --edit FOLDER, mend it, then refresh --from FOLDER"
            )
        body += make_diff(diff.path, old, fit.result)
    if not body:
        raise PatchError(f"{name}: all of it is upstream: drop it from {SERIES} and delete it")
    return _renew(folder / name, body, today)


def redone(data: bytes, body: bytes, today: datetime.date) -> bytes:
    """The patch `data` with the diff `body` in place of its own; Last-Update is `today` where they differ."""
    lines = split_lines(data)
    at = body_start(lines)
    if b"".join(lines[at:]) == body:
        return data
    return b"".join(_dated(line, today) for line in lines[:at]) + body


def _write(target: Path, files: dict[str, bytes]) -> list[str]:
    told: list[str] = []
    for path, data in files.items():
        place = target / path
        if place.exists():
            told.append(f"kept {place}: it was there already")
            continue
        atomic.write(place, data)
        told.append(f"wrote {place}")
    return told


def _take(wheel: Wheel, base: dict[str, bytes], patch: Patch, target: Path) -> list[str]:
    """Write the files of a patch with what of it applies; say which hunks do not."""
    told: list[str] = []
    for diff in patch.diffs:
        fit = fit_file(diff, _old(wheel, base, diff.path))
        data = fit.result if fit.result is not None else fit.partial
        if data is None:
            told.append(f"left out {diff.path}: no such file in {wheel.file}")
            continue
        written = _write(target, {diff.path: data})
        told += written
        told += _left_out(fit) if written[0].startswith("wrote ") else []
    return told


def _file(wheel: Wheel, base: dict[str, bytes], path: str) -> bytes:
    data = _old(wheel, base, path)
    if data is None:
        near = difflib.get_close_matches(path, wheel.paths(), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise PatchError(
            f"{path}: no such file in {wheel.file}{hint}: to add a file, create it in the work folder afterwards"
        )
    return data


def _old(wheel: Wheel, base: dict[str, bytes], path: str) -> bytes | None:
    return base[path] if path in base else wheel.read(path)


def _files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _is_debris(part: str) -> bool:
    return part.startswith(".") or part == "__pycache__"


def _header(place: Path) -> list[bytes] | None:
    """The lines of a header file, one empty line at the end; None if there is none."""
    if not place.is_file():
        return None
    lines = split_lines(place.read_bytes().rstrip(b"\n") + b"\n")
    if body_start(lines) != len(lines):
        raise PatchError(f"{place}: holds a diff: only the header's fields belong there")
    return [*lines, b"\n"]


def _faults(place: Path) -> list[str]:
    lines = split_lines(place.read_bytes())
    text = [line.decode("utf-8", "backslashreplace").removesuffix("\n") for line in lines[: body_start(lines)]]
    return [f"  header: {fault}" for fault in parse_header(text)[1]]


def _renew(place: Path, body: bytes, today: datetime.date, header: list[bytes] | None = None) -> str:
    lines = split_lines(place.read_bytes())
    at = body_start(lines)
    kept = lines[:at] if header is None else header
    if _undated(kept) == _undated(lines[:at]) and body == b"".join(lines[at:]):
        return f"{place}: unchanged"
    atomic.write(place, b"".join(_dated(line, today) for line in kept) + body)
    return f"{place}: renewed"


def _base(wheel: Wheel, folder: Path, name: str) -> tuple[dict[str, bytes], Patch | None]:
    """What the patches before `name` make of the wheel, and the patch itself unless it is new.

    Before a patch that was left out come those that the series lists above its line.
    """
    series = load_series(folder)
    names = [patch.name for patch in series.patches]
    at = names.index(name) if name in names else _gap(folder, series, name)
    outcome = judge(Series(series.patches[:at], ()), wheel)
    bad = [verdict.patch.name for verdict in outcome.verdicts if not _applies(verdict)]
    if bad:
        raise PatchError(f"{name}: patches before it do not apply: {', '.join(bad)}: renew them first, in order")
    return outcome.content, series.patches[at] if name in names else None


def _gap(folder: Path, series: Series, name: str) -> int:
    """How many patches stand before the place where `with_name` would list a new one."""
    text = with_name((folder / SERIES).read_bytes(), name).decode("utf-8", "backslashreplace")
    listed = [line.split("#")[0].strip() for line in text.split("\n")]
    before = listed[: listed.index(name)]
    return sum(patch.name in before for patch in series.patches)


def _applies(verdict: Verdict) -> bool:
    """Whether the diff applies; what its header lacks does not hinder work on other patches."""
    return bool(verdict.files) and all(fit.state is State.CLEAN for fit in verdict.files)


def _left_out(fit: FileFit) -> list[str]:
    if fit.result is not None:
        return []
    lost = [hunk for hunk in fit.fits if hunk.found_at is None]
    if not lost:
        return [f"  left out: all of it: {fit.note}"]
    return [f"  left out: the hunk on patch line {hunk.hunk.line}, for line {hunk.stated}" for hunk in lost]


def _undated(header: list[bytes]) -> list[bytes]:
    return [line for line in header if not line.startswith(b"Last-Update:")]


def _dated(line: bytes, today: datetime.date) -> bytes:
    return b"Last-Update: " + today.isoformat().encode() + b"\n" if line.startswith(b"Last-Update:") else line
