"""The package database as dpkg keeps it, so that scanners, and a dpkg from outside, see what the root holds.

That is /var/lib/dpkg/status, and info/*.list and info/*.md5sums for what was kept of each package. There
is no status.d beside it: scanners read both, and would count every package twice.
"""

import posixpath
from collections.abc import Iterable

from images.oci.rootfs_deb import Deb
from images.oci.rootfs_tree import Tree, merged

_FOLDER = "var/lib/dpkg"


def stanza(deb: Deb) -> str:
    """Returns a package's control file as an installed package's status has it."""
    head, *rest = deb.control.rstrip("\n").splitlines()
    return "\n".join([head, "Status: install ok installed", *rest]) + "\n"


def file_list(deb: Deb, tree: Tree) -> str:
    """Returns the package's own paths in the tree with the folders above them, one a line, as absolute paths."""
    paths = {""}
    for path, node in tree.nodes.items():
        if node.owner == deb.name:
            while path:
                paths.add(path)
                path = posixpath.dirname(path)
    return "".join(f"/{path or '.'}\n" for path in sorted(paths))


def md5sums(deb: Deb, tree: Tree) -> str:
    """Returns the package's own checksums, of those of its files that the tree kept."""
    kept = []
    for path, digest in sorted(deb.md5sums.items()):
        node = tree.nodes.get(merged(path))
        if node is not None and node.owner == deb.name and node.member.kind == "f":
            kept.append(f"{digest}  {merged(path)}\n")
    return "".join(kept)


def record(tree: Tree, debs: Iterable[Deb]) -> None:
    """Adds the database of `debs` to the tree."""
    ordered = sorted(debs, key=lambda d: d.name)
    files = []
    for deb in ordered:
        name = deb.name
        if deb.fields.get("Multi-Arch") == "same":
            name += ":" + deb.fields["Architecture"]
        files.append((f"{name}.list", file_list(deb, tree), deb.name))
        if sums := md5sums(deb, tree):
            files.append((f"{name}.md5sums", sums, deb.name))
    for name, text, owner in files:
        tree.file(f"{_FOLDER}/info/{name}", text.encode(), owner)
    tree.file(f"{_FOLDER}/info/format", b"1\n", "base-files")
    tree.file(f"{_FOLDER}/status", "\n".join(stanza(deb) for deb in ordered).encode(), "base-files")
