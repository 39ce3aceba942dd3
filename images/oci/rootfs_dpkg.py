"""The package database, so that scanners and `dpkg -l` elsewhere see what the root file system is made of.

Written twice, as both are read by somebody: /var/lib/dpkg/status as dpkg itself keeps it, and
/var/lib/dpkg/status.d/<package> with <package>.md5sums, for scanners of images without dpkg.
"""

from collections.abc import Iterable

from images.oci.rootfs_deb import Deb
from images.oci.rootfs_tree import Tree, merged

_FOLDER = "var/lib/dpkg"


def stanza(deb: Deb) -> str:
    """Returns a package's control file as an installed package's status has it."""
    head, *rest = deb.control.rstrip("\n").splitlines()
    return "\n".join([head, "Status: install ok installed", *rest]) + "\n"


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
    stanzas = []
    for deb in sorted(debs, key=lambda d: d.name):
        text = stanza(deb)
        stanzas.append(text)
        tree.file(f"{_FOLDER}/status.d/{deb.name}", text.encode(), deb.name)
        tree.file(f"{_FOLDER}/status.d/{deb.name}.md5sums", md5sums(deb, tree).encode(), deb.name)
    tree.file(f"{_FOLDER}/status", "\n".join(stanzas).encode(), "base-files")
