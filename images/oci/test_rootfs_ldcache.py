"""ld.so.cache: the linker's order, shared string ends, and which files count as libraries.

third_party/debian's rootfs_test compares a whole cache with the one that the root's own ldconfig writes.
"""

import struct

import pytest

from images.oci import rootfs_ldcache
from images.oci.rootfs_ldcache import Library
from images.oci.rootfs_testing import link
from images.oci.rootfs_tree import Tree, TreeError

GENERATOR = b"ldconfig (Debian GLIBC 2.36-9) stable release version 2.36"


def elf(name: str | None) -> bytes:
    """Returns the smallest x86-64 shared object with DT_SONAME `name`, or without one."""
    strings = b"\0" + (name or "").encode() + b"\0"
    dynamic = struct.pack("<QQ", 5, 0x200) + struct.pack("<QQ", 10, len(strings))
    if name is not None:
        dynamic += struct.pack("<QQ", 14, 1)
    dynamic += bytes(16)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, 0x400, 0x400, 0x1000)
    segment = struct.pack("<IIQQQQQQ", 2, 4, 0x100, 0x100, 0x100, len(dynamic), len(dynamic), 8)
    body = (head + load + segment).ljust(0x100, b"\0") + dynamic
    return (body.ljust(0x200, b"\0") + strings).ljust(0x400, b"\0")


@pytest.fixture
def tree() -> Tree:
    made = Tree()
    made.add(link("lib", "usr/lib"), "base-files")
    made.file("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n", "libc-bin")
    made.file("etc/ld.so.conf.d/b.conf", b"# multiarch\n/lib/multi\n/usr/lib/multi\n", "libc6")
    made.file("etc/ld.so.conf.d/a.conf", b"/usr/local/lib\n", "libc-bin")
    made.file("usr/sbin/ldconfig", b"\0" + GENERATOR + b"\0", "libc-bin", 0o755)
    made.file("usr/lib/multi/libz.so.1.2", elf("libz.so.1"), "zlib1g")
    made.add(link("usr/lib/multi/libz.so.1", "libz.so.1.2"), "zlib1g")
    made.add(link("usr/lib/multi/libz.so", "libz.so.1"), "zlib1g-dev")
    return made


def names(tree: Tree) -> list[str]:
    return sorted(library.name for library in rootfs_ldcache.libraries(tree))


def test_folders_are_the_configured_and_the_built_in_ones_each_once(tree: Tree) -> None:
    assert rootfs_ldcache.folders(tree) == ["lib/multi", "lib"]
    tree.file("usr/local/lib/x", b"", "x")
    assert rootfs_ldcache.folders(tree) == ["usr/local/lib", "lib/multi", "lib"]


def test_libraries_go_by_soname_and_development_links_by_their_own(tree: Tree) -> None:
    assert list(rootfs_ldcache.libraries(tree)) == [
        Library("libz.so", "/lib/multi/libz.so"),
        Library("libz.so.1", "/lib/multi/libz.so.1"),
    ]


def test_what_is_no_library_is_left_out(tree: Tree) -> None:
    for path, data in (("libc.so", b"/* GNU ld script */"), ("libbad.so", b"\x7fELF"), ("plugin.so", elf("plugin.so"))):
        tree.file(f"usr/lib/multi/{path}", data, "x")
    tree.add(link("usr/lib/multi/libgone.so", "libgone.so.1"), "x")
    assert names(tree) == ["libz.so", "libz.so.1"]


def test_a_library_without_soname_goes_by_its_file(tree: Tree) -> None:
    tree.file("usr/lib/multi/libplain.so", elf(None), "x")
    assert "libplain.so" in names(tree)


@pytest.mark.parametrize(
    ("one", "other"),
    [("libz.so.1", "libzstd.so.1"), ("liba.so.9", "liba.so.10"), ("libc.so", "libc.so.6"), ("liba-b.so", "liba2.so")],
)
def test_order(one: str, other: str) -> None:
    assert rootfs_ldcache.compare(one, other) < 0 < rootfs_ldcache.compare(other, one)
    assert rootfs_ldcache.compare(one, one) == 0


def test_render() -> None:
    found = [Library("liba.so.1", "/lib/liba.so.1"), Library("libb.so.1", "/lib/libb.so.1")]
    data = rootfs_ldcache.render(found, GENERATOR)
    assert data[:20] == b"glibc-ld.so.cache1.1"
    count, length, _, extension = struct.unpack_from("<IIB3xI", data, 20)
    assert (count, length) == (2, len(b"/lib/liba.so.1\0/lib/libb.so.1\0"))
    entries = [struct.unpack_from("<iIIIQ", data, 48 + 24 * n) for n in range(count)]
    texts = [[data[at : data.index(b"\0", at)] for at in entry[1:3]] for entry in entries]
    assert texts == [[b"libb.so.1", b"/lib/libb.so.1"], [b"liba.so.1", b"/lib/liba.so.1"]]
    assert extension % 4 == 0
    assert struct.unpack_from("<IIIIII", data, extension) == (0xEAA42174, 1, 0, 0, extension + 24, len(GENERATOR))
    assert data[extension + 24 :] == GENERATOR


def test_record(tree: Tree) -> None:
    rootfs_ldcache.record(tree)
    assert tree.data("etc/ld.so.cache", "this test").endswith(GENERATOR)
    assert tree.nodes["etc/ld.so.cache"].owner == "libc-bin"


def test_unknown_ldconfig(tree: Tree) -> None:
    del tree.nodes["usr/sbin/ldconfig"]
    rootfs_ldcache.record(tree)
    assert "etc/ld.so.cache" not in tree.nodes
    tree.file("usr/sbin/ldconfig", b"musl", "musl")
    with pytest.raises(TreeError, match="/usr/sbin/ldconfig: not glibc's ldconfig"):
        rootfs_ldcache.record(tree)
