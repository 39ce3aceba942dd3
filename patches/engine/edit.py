"""How a maintainer makes and renews a patch: take the files out, edit them, read the difference back."""

import datetime
from pathlib import Path

from patches.engine.apply import FileFit, State, fit_file
from patches.engine.diff import body_start
from patches.engine.errors import PatchError
from patches.engine.files import replace
from patches.engine.header import template
from patches.engine.judge import Verdict, judge
from patches.engine.make import make_diff
from patches.engine.series import SERIES, Patch, Series, load_series
from patches.engine.text import split_lines
from patches.engine.wheel import Wheel


def take_out(wheel: Wheel, folder: Path, name: str, paths: list[str], target: Path) -> list[str]:
    """Write into `target` the files of patch `name`, patched as far as it applies, and further files `paths`.

    Files see the patches before `name`. Nothing that lies in `target` is overwritten. Returns one line for
    each file written and for each hunk left out, which is then done by hand. Raises PatchError if an
    earlier patch fails.
    """
    base, patch = _base(wheel, folder, name)
    told: list[str] = []
    fits = (
        {diff.path: fit_file(diff, base.get(diff.path, wheel.read(diff.path))) for diff in patch.diffs} if patch else {}
    )
    for path in [*fits, *(path for path in paths if path not in fits)]:
        old = base.get(path, wheel.read(path))
        data = _best(fits[path]) if path in fits else old
        if data is None:
            raise PatchError(f"{path}: no such file in {wheel.file}: to add a file, create it in {target}")
        place = target / path
        if place.exists():
            told.append(f"kept {place}: it was there already")
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        told.append(f"wrote {place}")
        told += _left_out(fits[path]) if path in fits else []
    return told


def read_back(wheel: Wheel, folder: Path, name: str, source: Path, today: datetime.date) -> str:
    """Make patch `name` anew from the edited files under `source`, and list it in the series if it is new.

    The header is kept, but for Last-Update where the diff changed; a new patch gets one to fill in. What
    tools leave behind (hidden files, byte code) is passed over. Returns a line that says what was done.
    Raises PatchError if an earlier patch fails or nothing differs.
    """
    base, patch = _base(wheel, folder, name)
    if not source.is_dir():
        raise PatchError(f"{source}: no such folder: take the files out first")
    paths = sorted(path for path in _files(source) if not any(map(_is_debris, path.split("/"))))
    body = b"".join(make_diff(path, base.get(path, wheel.read(path)), (source / path).read_bytes()) for path in paths)
    if not body:
        raise PatchError(f"{source}: nothing differs from {wheel.project} {wheel.version}: edit a file first")
    if patch:
        return _renew(folder / name, body, today)
    header = template(name.removesuffix(".patch"), today).encode("utf-8") + b"\n"
    replace(folder / name, header + body)
    listing = folder / SERIES
    replace(listing, listing.read_bytes() + name.encode("ascii") + b"\n")
    return f"{folder / name}: made and listed last in {SERIES}; fill in its header"


def rebase(wheel: Wheel, folder: Path, name: str, today: datetime.date) -> str:
    """Make patch `name` anew where only its line numbers are off, or parts of it are upstream by now.

    Raises PatchError if an earlier patch fails, a hunk has no place, or nothing of the patch is left.
    """
    base, patch = _base(wheel, folder, name)
    if patch is None:
        raise PatchError(f"{name}: not listed in {SERIES}: for a new patch say --from FOLDER")
    body = b""
    for diff in patch.diffs:
        old = base.get(diff.path, wheel.read(diff.path))
        fit = fit_file(diff, old)
        if fit.result is None:
            raise PatchError(f"{name}: {diff.path} conflicts: take it out with edit, then refresh --from FOLDER")
        body += make_diff(diff.path, old, fit.result)
    if not body:
        raise PatchError(f"{name}: all of it is upstream: drop it from {SERIES} and delete it")
    return _renew(folder / name, body, today)


def _files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _is_debris(part: str) -> bool:
    return part.startswith(".") or part == "__pycache__"


def _renew(place: Path, body: bytes, today: datetime.date) -> str:
    lines = split_lines(place.read_bytes())
    start = body_start(lines)
    if b"".join(lines[start:]) == body:
        return f"{place}: unchanged"
    header = b"".join(_dated(line, today) for line in lines[:start])
    replace(place, header + body)
    return f"{place}: renewed"


def _base(wheel: Wheel, folder: Path, name: str) -> tuple[dict[str, bytes], Patch | None]:
    """What the patches before `name` make of the wheel, and the patch itself unless it is new."""
    series = load_series(folder)
    names = [patch.name for patch in series.patches]
    at = names.index(name) if name in names else len(names)
    outcome = judge(Series(series.patches[:at], ()), wheel)
    bad = [verdict.patch.name for verdict in outcome.verdicts if not _applies(verdict)]
    if bad:
        raise PatchError(f"{name}: patches before it do not apply: {', '.join(bad)}: renew them first, in order")
    if not name.endswith(".patch"):
        raise PatchError(f"{name}: a patch's name ends in .patch")
    return outcome.content, series.patches[at] if at < len(names) else None


def _applies(verdict: Verdict) -> bool:
    """Whether the diff applies; what its header lacks does not hinder work on other patches."""
    return bool(verdict.files) and all(fit.state is State.CLEAN for fit in verdict.files)


def _best(fit: FileFit) -> bytes | None:
    return fit.result if fit.result is not None else fit.partial


def _left_out(fit: FileFit) -> list[str]:
    if fit.result is not None:
        return []
    lost = [hunk for hunk in fit.fits if hunk.found_at is None]
    if not lost:
        return [f"  left out: all of it: {fit.note}"]
    return [f"  left out: the hunk on patch line {hunk.hunk.line}, for line {hunk.stated}" for hunk in lost]


def _dated(line: bytes, today: datetime.date) -> bytes:
    return b"Last-Update: " + today.isoformat().encode() + b"\n" if line.startswith(b"Last-Update:") else line
