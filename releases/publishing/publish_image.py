"""The layout of a release, from what is built already or from a build of its commit, and into a registry."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from images.engine import layout
from images.engine.errors import EngineError
from images.engine.layout import Image
from releases.changelog.entry import Entry
from releases.tree import build
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.cli.output import Output


@contextmanager
def layout_of(git: Git, entry: Entry, given: Sequence[Path], out: Output) -> Iterator[Image]:
    """The layout that has the digest of the release's entry.

    One of the `given` folders where there are any; else what Bazel built here last, where it has the digest; else a
    build: in the tree where it is clean and at the release's commit, or in a folder of its own that is removed.

    Raises UserError where no layout has the digest.
    """
    if given:
        images = [layout.read(folder, str(entry.tag)) for folder in given]
        found = [image for image in images if image.manifest.digest == entry.digest]
        if not found:
            listed = ", ".join(f"{image.directory} has {image.manifest.digest}" for image in images)
            raise UserError(f"{entry.tag}: CHANGELOG.md says {entry.digest}; {listed}: none is this release")
        yield found[0]
    elif built := _built(git.root, entry):
        yield built
    elif git.head() == entry.commit and not git.dirty():
        with out.doing(f"building {entry.tag}"):
            folder = build.built(git.root, entry.tag)
        yield _checked(folder, entry)
    else:
        yield from _elsewhere(git, entry, out)


def tidy(git: Git) -> None:
    """Removes what a publish left that was killed; for who holds the lock."""
    shutil.rmtree(_place(git), ignore_errors=True)
    build.tidy(git)


def _place(git: Git) -> Path:
    return git.folder() / "moet" / "publish"


def _elsewhere(git: Git, entry: Entry, out: Output) -> Iterator[Image]:
    place = _place(git)
    try:
        doing = f"building {entry.tag} of {entry.commit[:12]} in a folder of its own"
        with out.doing(doing), build.elsewhere(git, entry.commit, place) as workspace:
            folder = workspace.layout(entry.tag)
        yield _checked(folder, entry)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _built(root: Path, entry: Entry) -> Image | None:
    package, _, name = build.target(entry.tag).removeprefix("//").partition(":")
    with contextlib.suppress(EngineError, KeyError, OSError):
        image = layout.read(root / "bazel-bin" / package / name)
        if image.manifest.digest == entry.digest:
            return image
    return None


def _checked(folder: Path, entry: Entry) -> Image:
    image = layout.read(folder)
    if image.manifest.digest != entry.digest:
        raise UserError(
            f"{entry.tag}: commit {entry.commit[:12]} builds {image.manifest.digest} here, CHANGELOG.md says"
            f" {entry.digest}; nothing was pushed: moet image verify {entry.tag} says what differs"
        )
    return image
