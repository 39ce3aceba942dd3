"""A release's image from the source tree: what is built already, or a build of the release's commit."""

import contextlib
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
def released_image(git: Git, entry: Entry, out: Output, given: Sequence[Path] = ()) -> Iterator[Image]:
    """The image that has the digest of a release's entry, for as long as the block runs.

    One of the `given` layouts where there are any; else what Bazel built here last, where it has the digest; else a
    build: in the tree where it is clean and at the release's commit, or in a folder of its own that is removed.

    Raises UserError where the tree lacks the commit, it does not build, or no layout has the digest.
    """
    if given:
        yield _among(given, entry)
    elif built := _built(git.root, entry):
        yield built
    elif git.head() == entry.commit and not git.dirty():
        with out.doing(f"building {entry.tag}"):
            folder = build.built(git.root, entry.tag)
        yield _checked(folder, entry)
    elif git.resolve(entry.commit) is None:
        more = "git fetch --unshallow" if git.is_shallow() else "git fetch"
        raise UserError(f"{git.root} does not have the commit {entry.commit} of {entry.tag}: {more}")
    else:
        out.note(f"building {entry.tag} of {entry.commit[:12]} in a folder of its own: this takes minutes")
        with build.elsewhere(git, entry.commit) as workspace:
            yield _checked(workspace.built(entry.tag), entry)


def _among(folders: Sequence[Path], entry: Entry) -> Image:
    images = [layout.read(folder, str(entry.tag)) for folder in folders]
    for image in images:
        if image.manifest.digest == entry.digest:
            return image
    listed = ", ".join(f"{image.directory} has {image.manifest.digest}" for image in images)
    raise UserError(f"{entry.tag}: CHANGELOG.md says {entry.digest}; {listed}: none is this release")


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
            f" {entry.digest}: moet image verify {entry.tag} says what differs"
        )
    return image
