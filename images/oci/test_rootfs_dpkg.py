"""The package database: what was kept of each package, under dpkg's own names."""

from pathlib import Path

from images.oci import rootfs_deb, rootfs_dpkg, rootfs_tree
from images.oci.rootfs_testing import deb, directory, file, link
from images.oci.rootfs_tree import Globs, Tree


def record(folder: Path) -> Tree:
    debs = [
        rootfs_deb.read(deb(folder, name, members, control))
        for name, members, control in (
            ("tool", [directory("bin"), file("bin/b", b"2"), file("usr/share/man/b", b"3")], ""),
            ("libx", [file("lib/libx.so.1", b"1"), link("lib/libx.so", "libx.so.1")], "Multi-Arch: same\n"),
            ("meta", [directory("usr")], "Source: other (2.0)\n"),
        )
    ]
    tree = rootfs_tree.merge(debs, Globs(["usr/share/man/*"]), Globs([]), {})
    rootfs_dpkg.record(tree, debs)
    return tree


def test_status_has_every_package_as_installed(tmp_path: Path) -> None:
    text = record(tmp_path).data("var/lib/dpkg/status", "this test").decode()
    stanzas = [rootfs_deb.parse_control(part) for part in text.split("\n\n")]
    assert [(s["Package"], s["Version"], s["Status"]) for s in stanzas] == [
        (name, "1.0", "install ok installed") for name in ("libx", "meta", "tool")
    ]
    assert stanzas[1]["Source"] == "other (2.0)"
    assert stanzas[2]["Description"] == "for tests\n more of it"


def test_lists_and_checksums_have_what_was_kept(tmp_path: Path) -> None:
    tree = record(tmp_path)
    folder = "var/lib/dpkg/info/"
    info = {path.removeprefix(folder): node for path, node in tree.nodes.items() if path.startswith(folder)}
    assert sorted(info) == ["format", "libx:amd64.list", "libx:amd64.md5sums", "meta.list", "tool.list", "tool.md5sums"]
    assert info["tool.list"].member.data == b"/.\n/usr\n/usr/bin\n/usr/bin/b\n"
    assert info["tool.md5sums"].member.data == b"c81e728d9d4c2f636f067f89cc14862c  usr/bin/b\n"
    assert b"/usr/lib/libx.so\n/usr/lib/libx.so.1\n" in info["libx:amd64.list"].member.data
    assert info["tool.list"].owner == "tool"
