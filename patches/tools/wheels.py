"""Wheels at hand: Bazel's copy of the pinned one, those downloaded before, else a download.

The cache is $XDG_CACHE_HOME/moet/wheels/<project>/<version>/<sha256>/<file>: the name says what the content must be.
"""

import os
import shutil
import tempfile
from pathlib import Path

from patches.engine.errors import PatchError
from patches.engine.wheel import Wheel
from patches.tools import pip
from patches.tools.place import Pin, Place
from tools.cli.output import Output
from tools.files import atomic, lock

_WAIT_SECONDS = 3600


def cache() -> Path:
    """Moet's folder below the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home and os.path.isabs(home) else Path.home() / ".cache") / "moet"


def pinned(place: Place, out: Output) -> Wheel:
    """The wheel that the series is for, opened; its content is held against the lock.

    Raises PatchError where it is neither at hand nor to be downloaded.
    """
    pin = place.pin
    link = place.root / "bazel-out"
    if link.is_symlink():
        # <output base>/execroot/<workspace>/bazel-out
        path = link.resolve().parent.parent.parent / "external" / pin.repository / pin.file
        if path.is_file() and (wheel := _open(path, pin.sha256)):
            return wheel
    return _cached(pin.project, pin.version, out, pin)


def published(place: Place, version: str, out: Output) -> Wheel:
    """The wheel of another version of the series' project, opened, and downloaded if it was not yet.

    Raises PatchError, with the versions that are offered, where there is none.
    """
    if version == place.pin.version:
        return pinned(place, out)
    if not version or set(version) & set("/\\ =<>,;\n") or version.startswith((".", "-")):
        raise PatchError(f"{version!r} is no version of {place.pin.project}: name one, such as {place.pin.version}")
    return _cached(place.pin.project, version, out)


def named(place: Place, text: str, out: Output) -> Wheel:
    """The wheel that a person named, by version or as a file (ends in .whl), opened.

    Raises PatchError where there is none, or it is another project's.
    """
    if not text.endswith(".whl"):
        return published(place, text, out)
    wheel = Wheel(Path(text))
    if wheel.project != place.pin.project.replace("-", "_"):
        wheel.close()
        raise PatchError(f"{text}: is a wheel of {wheel.project}, but the series is for {place.pin.project}")
    return wheel


def _cached(project: str, version: str, out: Output, pin: Pin | None = None) -> Wheel:
    folder = cache() / "wheels" / project / version
    if wheel := _kept(folder, out, pin):
        return wheel
    with lock.exclusive(cache() / "wheels" / project / f"{version}.lock", _WAIT_SECONDS, out.note):
        for left in folder.parent.glob(f".{version}.*.partial"):
            shutil.rmtree(left, ignore_errors=True)
        if wheel := _kept(folder, out, pin):
            return wheel
        return _fetch(project, version, folder, out, pin)


def _kept(folder: Path, out: Output, pin: Pin | None) -> Wheel | None:
    """A wheel of the cache, if its content is what the name of its folder says; else it is removed."""
    for path in sorted(folder.glob("*/*.whl")):
        if pin is not None and path.parent.name != pin.sha256:
            continue
        if wheel := _open(path, path.parent.name):
            return wheel
        out.note(f"{path}: its content is not what it was: removed, and fetched again")
        shutil.rmtree(path.parent)
    return None


def _fetch(project: str, version: str, folder: Path, out: Output, pin: Pin | None) -> Wheel:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{version}.", suffix=".partial", dir=folder.parent))
    out.note(f"{project} {version}: not at hand, downloading its wheel")
    try:
        with out.progress() as bar:
            told = [0, 0]

            def progress(_: str, done: int, total: int) -> None:
                if told[1] != total:
                    bar.start(f"{project} {version}", total)
                    told[:] = [0, total]
                bar.advance(max(done - told[0], 0))
                told[0] = max(done, told[0])

            got = pip.download(project, version, draft, progress, pin.sha256 if pin else None)
        wheel = Wheel(got)
        if pin is not None and wheel.sha256 != pin.sha256:
            raise PatchError(f"{got.name}: sha256 {wheel.sha256} came, {pin.lock} has {pin.sha256}: look into why")
        place = folder / wheel.sha256
        place.mkdir(parents=True, exist_ok=True)
        with got.open("rb") as stream:
            os.fsync(stream.fileno())
        got.rename(place / got.name)
        atomic.sync_folder(place)
    except OSError as error:
        raise PatchError(f"{error.filename or draft}: cannot keep the wheel ({error.strerror})") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return wheel


def _open(path: Path, sha256: str) -> Wheel | None:
    """The wheel, if it has this hash."""
    try:
        wheel = Wheel(path)
    except PatchError:
        return None
    if wheel.sha256 == sha256:
        return wheel
    wheel.close()
    return None
