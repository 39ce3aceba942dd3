"""Unpacks the wanted paths of Debian packages into one folder, without links."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from images.oci.rootfs_deb import Deb
from images.oci.rootfs_tree import Tree


class UnpackError(Exception):
    """Packages that do not make one folder; the message is one line for the user."""


def unpack(debs: Iterable[Deb], include: Sequence[str], exclude: Sequence[str], folder: Path) -> None:
    """Unpacks the paths that begin with a prefix of `include` and with none of `exclude`.

    A link becomes a copy of the file that it leads to, so that the folder is the same however a build copies it.
    Modes are 755 and 644. Raises UnpackError when a prefix matches nothing or a wanted link does not lead to a file,
    and LayerError when two packages disagree on a path or one is damaged.
    """
    tree = Tree()
    for deb in debs:
        for member in deb.members():
            tree.add(member, deb.name)
    unused = {*include, *exclude}
    for path, node in tree.nodes.items():
        hits = [prefix for prefix in (*include, *exclude) if path.startswith(prefix)]
        unused -= set(hits)
        if node.member.kind == "d" or not set(hits) & set(include) or set(hits) & set(exclude):
            continue
        real = tree.real(path)
        if real is None or tree.nodes[real].member.kind != "f":
            raise UnpackError(f"/{path}: {node.owner} has no file there; expected one, or a link to one")
        member = tree.nodes[real].member
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(member.data)
        target.chmod(0o755 if member.mode & 0o100 else 0o644)
    if unused:
        raise UnpackError(f"no package has a path that begins with {', '.join(sorted(unused))}")
