"""What maintainer scripts would make: links, copies, accounts, certificates; stale entries are errors."""

import re

import pytest

from images.oci import rootfs_scripts
from images.oci.rootfs_policy import Copy, Directory, Link, Policy, Text, User
from images.oci.rootfs_testing import directory, file, link
from images.oci.rootfs_tree import Tree, TreeError

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MOET = User("moet", 1000, 1000, "/var/lib/moet", "/bin/bash", "serves models")


@pytest.fixture
def tree() -> Tree:
    made = Tree()
    made.add(file("usr/bin/mawk", b"awk", 0o755), "mawk")
    made.add(file("usr/share/base-passwd/passwd.master", b"root:*:0:0:root:/root:/bin/bash\n"), "base-passwd")
    made.add(file("usr/share/base-passwd/group.master", b"root:*:0:\nusers:*:100:\n"), "base-passwd")
    made.add(directory("var/run"), "base-files")
    made.add(directory("run"), "base-files")
    return made


def test_links_copies_texts_directories(tree: Tree) -> None:
    rootfs_scripts.apply(tree, Policy(
        links=(Link("usr/bin/awk", "mawk", "mawk"), Link("var/run", "/run", "base-files")),
        copies=(Copy("usr/share/base-passwd/group.master", "etc/g"),),
        texts=(Text("etc/timezone", "Etc/UTC\n", "base-files"),),
        directories=(Directory("run/lock", 0o1777, 0, 0, "base-files"),),
    ))
    assert tree.real("usr/bin/awk") == "usr/bin/mawk"
    assert tree.nodes["usr/bin/awk"].owner == "mawk"
    assert tree.nodes["var/run"].member.target == "/run"
    assert tree.data("etc/g", "this test") == tree.data("usr/share/base-passwd/group.master", "this test")
    assert tree.nodes["etc/g"].owner == "base-passwd"
    assert tree.data("etc/timezone", "this test") == b"Etc/UTC\n"
    assert tree.nodes["run/lock"].member.mode == 0o1777


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(links=(Link("usr/bin/cc", "gcc", "mawk"),)), "/usr/bin/cc: the policy links it to gcc, which"),
        (Policy(links=(Link("usr/bin/mawk", "x", "mawk"),)), "/usr/bin/mawk: mawk brings it already"),
        (Policy(texts=(Text("usr/bin/mawk", "", "mawk"),)), "/usr/bin/mawk: mawk brings it already"),
        (Policy(links=(Link("a", "usr", "gawk"),)), "/a: the policy gives it to gawk, which is not among"),
        (Policy(texts=(Text("a", "", "gawk"),)), "/a: the policy gives it to gawk, which is not among"),
        (Policy(copies=(Copy("etc/none", "a"),)), "/etc/none: no such file in the packages, but"),
        (Policy(certificates=("etc/*.crt",), bundle="b"), "the policy's certificates etc/*.crt match nothing"),
    ],
)
def test_entry_that_does_not_fit(tree: Tree, policy: Policy, said: str) -> None:
    with pytest.raises(TreeError, match=re.escape(said)):
        rootfs_scripts.apply(tree, policy)


def test_a_link_does_not_replace_a_full_directory(tree: Tree) -> None:
    tree.add(file("var/run/pid"), "base-files")
    with pytest.raises(TreeError, match="/var/run: base-files brings it already"):
        rootfs_scripts.apply(tree, Policy(links=(Link("var/run", "/run", "base-files"),)))


def test_accounts(tree: Tree) -> None:
    rootfs_scripts.apply(tree, Policy(users=(MOET,)))
    passwd = tree.data("etc/passwd", "this test").decode().splitlines()
    assert passwd == ["root:*:0:0:root:/root:/bin/bash", "moet:x:1000:1000:serves models:/var/lib/moet:/bin/bash"]
    assert tree.data("etc/group", "this test").decode().splitlines()[-1] == "moet:x:1000:"
    home = tree.nodes["var/lib/moet"].member
    assert (home.kind, home.mode, home.uid, home.gid) == ("d", 0o755, 1000, 1000)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (User("root", 1000, 1000, "/r", "/bin/sh", ""), "user root (1000)"),
        (User("moet", 0, 1000, "/r", "/bin/sh", ""), "user moet (0)"),
        (User("moet", 1000, 100, "/r", "/bin/sh", ""), "group moet (100)"),
    ],
)
def test_account_that_exists(tree: Tree, user: User, said: str) -> None:
    with pytest.raises(TreeError, match=re.escape(said) + ": base-passwd has that name or number"):
        rootfs_scripts.accounts(tree, (user,))


def test_certificates(tree: Tree) -> None:
    tree.add(file("usr/share/ca/B, Ltd.crt", CERTIFICATE.replace(b"MIIB", b"BBBB")), "ca-certificates")
    tree.add(file("usr/share/ca/A.crt", CERTIFICATE.rstrip(b"\n")), "ca-certificates")
    tree.add(link("usr/share/ca/C.crt", "A.crt"), "ca-certificates")
    rootfs_scripts.certificates(tree, ("usr/share/ca/*.crt",), "etc/ssl/certs/all.crt")
    assert tree.data("etc/ssl/certs/all.crt", "this test") == CERTIFICATE + CERTIFICATE.replace(b"MIIB", b"BBBB")
    assert tree.nodes["etc/ssl/certs/B__Ltd.pem"].member.target == "/usr/share/ca/B, Ltd.crt"
    assert tree.real("etc/ssl/certs/A.pem") == "usr/share/ca/A.crt"


def test_not_a_certificate(tree: Tree) -> None:
    tree.add(file("usr/share/ca/A.crt", b"hello"), "ca-certificates")
    with pytest.raises(TreeError, match=r"^/usr/share/ca/A.crt: not one PEM certificate"):
        rootfs_scripts.certificates(tree, ("usr/share/ca/*.crt",), "b")
