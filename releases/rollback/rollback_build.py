"""A release's image from Moet's source tree: what Bazel built here last, or a build of the release's commit."""

import contextlib
from collections.abc import Iterator
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
def image_of(root: Path, entry: Entry, out: Output) -> Iterator[Image]:
    """The image of a release, with the digest and the id of its entry, for as long as the block runs.

    Raises UserError where the tree lacks the commit, it does not build, or builds another image.
    """
    if built := _built(root, entry):
        yield built
        return
    git = Git(root)
    if git.resolve(entry.commit) is None:
        more = "git fetch --unshallow" if git.is_shallow() else "git fetch"
        raise UserError(f"{root} does not have the commit {entry.commit} of {entry.tag}: {more}")
    out.note(f"building {entry.tag} from its commit {entry.commit[:12]}, in a folder of its own: this takes minutes")
    with build.elsewhere(git, entry.commit) as workspace:
        image = layout.read(workspace.built(entry.tag), str(entry.tag))
        if not _same(image, entry):
            raise UserError(
                f"{entry.commit} builds {image.manifest.digest}, the CHANGELOG says {entry.digest}: one was altered"
            )
        yield image


def _built(root: Path, entry: Entry) -> Image | None:
    package, _, name = build.target(entry.tag).removeprefix("//").partition(":")
    with contextlib.suppress(EngineError, OSError):
        image = layout.read(root / "bazel-bin" / package / name)
        return image if _same(image, entry) else None
    return None


def _same(image: Image, entry: Entry) -> bool:
    return (image.manifest.digest, image.config.digest) == (entry.digest, entry.image_id)
