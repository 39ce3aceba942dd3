"""What the source tree would build of an image's line."""

import re
from dataclasses import dataclass
from pathlib import Path

from images.inspect.errors import InspectError
from images.manifest import model
from releases.tree import build
from releases.tree.git import Git
from tools.cli.errors import UserError

_LINE = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*")
_BASE = re.compile(r".*-r0(-dev)?")


@dataclass(frozen=True)
class Tree:
    """The tree at `root`, checked out at `commit` with `changes` files that differ from it, and its manifest."""

    root: Path
    commit: str | None
    changes: int
    target: str
    manifest: model.Manifest


def of(manifest: model.Manifest, root: Path) -> Tree:
    """Builds the manifest of the tree's image of the same line: upstream's without steps for an r0.

    Bazel reports on stderr. Raises UserError: the tree has no such line, or does not build.
    """
    line = manifest.line
    if not _LINE.fullmatch(line) or not (root / "images" / line / "BUILD.bazel").is_file():
        raise InspectError(f"{root}: has no line {line!r} (images/{line}/BUILD.bazel): --against-tree needs it")
    name = "manifest.base" if _BASE.fullmatch(manifest.tag) and not manifest.steps else "manifest"
    target = f"//images/{line}:{name}"
    path = build.build(root, [target]) / "images" / line / f"{name}.json"
    try:
        made = model.decode(model.Manifest, model.loads(path.read_bytes()))
    except (OSError, model.DataError) as error:
        raise InspectError(f"{path}: {error}: {target} was expected to make a manifest that this moet reads") from None
    git = Git(root)
    try:
        commit, changes = git.resolve("HEAD"), len(git.dirty())
    except UserError:
        commit, changes = None, 0
    return Tree(root, commit, changes, target, made)
