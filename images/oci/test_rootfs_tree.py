"""Merging packages: /usr, drops, collisions, links; the same tree from any order."""

import posixpath
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from images.oci import rootfs_deb, rootfs_tree
from images.oci.rootfs_deb import DebError, Member
from images.oci.rootfs_testing import deb, directory, file, hardlink, link
from images.oci.rootfs_tree import Globs, Tree, TreeError


def merge(
    folder: Path,
    packages: Mapping[str, Iterable[Member]],
    drop: Iterable[str] = (),
    keep: Iterable[str] = (),
    winners: dict[str, str] | None = None,
) -> Tree:
    debs = [rootfs_deb.read(deb(folder, name, members)) for name, members in packages.items()]
    random.Random(1).shuffle(debs)
    return rootfs_tree.merge(debs, Globs(drop), Globs(keep), winners or {})


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        ("bin/sh", "dash", "dash"),
        ("lib/x86_64-linux-gnu/libz.so.1", "libz.so.1.2", "libz.so.1.2"),
        ("sbin/a", "/lib/x/a", "/lib/x/a"),
        ("sbin/a", "../bin/b", "../bin/b"),
        ("bin/a", "../usr/bin/b", "b"),
        ("lib/x/a", "../../usr/share/b", "../../share/b"),
        ("lib/x/a", "../../etc/b", "../../../etc/b"),
        ("usr/lib/x/a", "../../../lib/x/b", "../../../lib/x/b"),
    ],
)
def test_links_lead_to_the_same_file_after_the_move(tmp_path: Path, path: str, target: str, expected: str) -> None:
    assert rootfs_tree.merged_target(path, target) == expected
    pointed = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), target)).lstrip("/")
    wanted = rootfs_tree.merged(pointed)
    tree = merge(tmp_path, {"a": [link(path, target)], "b": [file(wanted)]})
    assert tree.real(path) == wanted


def test_programs_and_libraries_move_into_usr(tmp_path: Path) -> None:
    members = [directory("bin"), file("bin/a", b"1", 0o755), directory("lib64"), link("lib64/ld.so", "/lib/ld.so")]
    tree = merge(tmp_path, {"p": members, "q": [file("usr/bin/b"), file("lib/ld.so")]})
    assert {path: node.member.target for path, node in tree.nodes.items() if node.member.kind == "l"} == {
        "bin": "usr/bin",
        "lib": "usr/lib",
        "lib64": "usr/lib64",
        "sbin": "usr/sbin",
        "usr/lib64/ld.so": "/lib/ld.so",
    }
    assert tree.data("usr/bin/a", "this test") == b"1"
    assert tree.real("lib64/ld.so") == "usr/lib/ld.so"
    assert not [path for path in tree.nodes if path.startswith(("bin/", "lib64/"))]


def test_two_packages_with_different_bytes(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=r"^/usr/bin/x: one and two install it with different content"):
        merge(tmp_path, {"two": [file("bin/x", b"2")], "one": [file("usr/bin/x", b"1")]})


@pytest.mark.parametrize("other", [directory("etc/x"), link("etc/x", "y")])
def test_two_packages_with_different_kinds(tmp_path: Path, other: Member) -> None:
    with pytest.raises(TreeError, match=r"^/etc/x: a and b install it"):
        merge(tmp_path, {"a": [file("etc/x")], "b": [other]})


def test_the_same_bytes_belong_to_the_first(tmp_path: Path) -> None:
    tree = merge(tmp_path, {"b": [directory("etc"), file("etc/x", b"1")], "a": [file("etc/x", b"1")]})
    assert tree.nodes["etc/x"].owner == "a"


def test_declared_winner(tmp_path: Path) -> None:
    packages = {"a": [file("etc/x", b"1")], "b": [file("etc/x", b"2")]}
    tree = merge(tmp_path, packages, winners={"etc/x": "b"})
    assert (tree.nodes["etc/x"].owner, tree.data("etc/x", "this test")) == ("b", b"2")


def test_directories_that_no_package_lists(tmp_path: Path) -> None:
    tree = merge(tmp_path, {"a": [file("root/x/y")], "b": [directory("root", 0o700)]})
    assert {p: (n.member.mode, n.owner) for p, n in tree.nodes.items() if p in ("root", "root/x")} == {
        "root": (0o700, "b"),
        "root/x": (0o755, "a"),
    }


@pytest.mark.parametrize("above", [link("var/run", "/run"), file("var/run")])
def test_content_under_what_is_no_directory(tmp_path: Path, above: Member) -> None:
    with pytest.raises(TreeError, match=r"^/var/run/x: b installs it under /var/run, which is no directory in a"):
        merge(tmp_path, {"a": [above], "b": [file("var/run/x")]})


def test_one_package_twice(tmp_path: Path) -> None:
    first = rootfs_deb.read(deb(tmp_path, "a", [file("x")]))
    with pytest.raises(TreeError, match=r"^a: given twice, as a_1.0_amd64.deb and a_1.0_amd64.deb"):
        rootfs_tree.merge([first, first], Globs([]), Globs([]), {})


def test_drop_and_keep(tmp_path: Path) -> None:
    members = [
        directory("usr/share/doc"),
        directory("usr/share/doc/a"),
        file("usr/share/doc/a/copyright"),
        file("usr/share/doc/a/changelog.gz"),
        directory("usr/share/doc/b"),
        file("usr/share/doc/b/html/index.html"),
        directory("usr/share/empty"),
        file("usr/bin/a"),
    ]
    tree = merge(tmp_path, {"a": members}, ["usr/share/doc/*"], ["usr/share/doc/*/copyright"])
    assert sorted(path for path in tree.nodes if path.startswith("usr/")) == [
        "usr/bin",
        "usr/bin/a",
        "usr/share",
        "usr/share/doc",
        "usr/share/doc/a",
        "usr/share/doc/a/copyright",
        "usr/share/empty",
    ]


@pytest.mark.parametrize(
    ("drop", "keep", "winners", "said"),
    [
        (["usr/share/man/*"], [], {}, "usr/share/man/"),
        ([], ["etc/y"], {}, "etc/y"),
        ([], [], {"etc/x": "a"}, "etc/x"),
    ],
)
def test_stale_policy(tmp_path: Path, drop: list[str], keep: list[str], winners: dict[str, str], said: str) -> None:
    with pytest.raises(TreeError, match=rf"^the policy's {said}.* matches nothing in the packages"):
        merge(tmp_path, {"a": [file("etc/x")]}, drop, keep, winners)


def test_setid_bits_are_dropped_and_told(tmp_path: Path) -> None:
    members = [file("bin/su", b"", 0o4755), directory("var/local", 0o2775), directory("tmp", 0o1777)]
    tree = merge(tmp_path, {"a": members})
    assert [tree.nodes[p].member.mode for p in ("usr/bin/su", "var/local", "tmp")] == [0o755, 0o775, 0o1777]
    assert tree.dropped_setid == ["usr/bin/su", "var/local"]


def test_hard_links_become_files_even_when_their_target_is_dropped(tmp_path: Path) -> None:
    tree = merge(tmp_path, {"a": [file("bin/perl", b"1", 0o755), hardlink("bin/perl5", "bin/perl")]}, ["usr/bin/perl"])
    assert tree.nodes["usr/bin/perl5"].member == file("usr/bin/perl5", b"1", 0o755)


def test_hard_link_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(DebError, match="/b is a hard link to nothing"):
        merge(tmp_path, {"a": [hardlink("b", "c")]})


def test_real_follows_links_and_survives_loops(tmp_path: Path) -> None:
    links = [link("a", "b"), link("b", "a"), link("c", "d/e"), link("d", "/f/../g")]
    tree = merge(tmp_path, {"a": [*links, file("g/e"), directory("f")]})
    assert (tree.real("a"), tree.real("c"), tree.real("d/nothing")) == (None, "g/e", None)
