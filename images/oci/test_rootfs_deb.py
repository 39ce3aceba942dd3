"""Reading Debian packages: what they hold, and one line for each way in which a file is not one."""

from pathlib import Path

import pytest

from images.oci import rootfs_deb
from images.oci.rootfs_deb import DebError, Member
from images.oci.rootfs_testing import ar, deb, directory, file, hardlink, link, tar


@pytest.mark.parametrize("compression", ["xz", "gz", "bz2"])
def test_reads_control_and_content(tmp_path: Path, compression: str) -> None:
    members = [directory("etc"), file("etc/a", b"hello", 0o600), link("etc/b", "a"), hardlink("etc/c", "etc/a")]
    got = rootfs_deb.read(deb(tmp_path, "libfoo", members, "Multi-Arch: same\n", compression))
    assert (got.name, got.version, got.fields["Multi-Arch"]) == ("libfoo", "1.0", "same")
    assert got.fields["Description"] == "for tests\n more of it"
    assert got.md5sums == {"etc/a": "5d41402abc4b2a76b9719d911017c592"}
    assert list(got.members()) == members


def test_paths_lose_their_dot_and_slash(tmp_path: Path) -> None:
    path = deb(tmp_path, "a", [directory(""), directory("usr/"), file("usr//share/./x")])
    assert [member.path for member in rootfs_deb.read(path).members()] == ["usr", "usr/share/x"]


def test_modes_and_owners_are_kept(tmp_path: Path) -> None:
    member = Member("var/local", "d", 0o2775, 0, 50)
    assert list(rootfs_deb.read(deb(tmp_path, "a", [member])).members()) == [member]


def _parts(**changes: bytes | None) -> dict[str, bytes]:
    control = tar([file("control", b"Package: a\nVersion: 1\n")], "w:xz")
    data = tar([], "w:xz")
    parts: dict[str, bytes | None] = {"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.xz": data}
    parts.update({name.replace("__", "-").replace("_", "."): data for name, data in changes.items()})
    return {name: data for name, data in parts.items() if data is not None}


BAD = {
    "empty": (b"", "not an ar archive"),
    "html": (b"<html>504 Gateway Time-out</html>", "not an ar archive"),
    "header": (ar(_parts())[:100], "damaged ar archive"),
    "cut": (ar(_parts())[:-30], "cut short"),
    "version": (ar(_parts(debian__binary=b"3.0\n")), "no debian-binary 2.x"),
    "no control": (ar(_parts(control_tar_xz=None)), "no control.tar in it"),
    "no data": (ar(_parts(data_tar_xz=None)), "no data.tar in it"),
    "compression": (ar(_parts(data_tar_xz=None, data_tar_zst=b"")), "data.tar.zst has an unknown compression"),
    "control": (ar(_parts(control_tar_xz=b"\0" * 64)), "control.tar.xz is damaged"),
    "nameless": (ar(_parts(control_tar_xz=tar([file("control", b"Version: 1\n")], "w:xz"))), "names no Package"),
}


@pytest.mark.parametrize("what", BAD)
def test_not_a_package(tmp_path: Path, what: str) -> None:
    data, said = BAD[what]
    path = tmp_path / "a.deb"
    path.write_bytes(data)
    with pytest.raises(DebError, match=rf"^a\.deb: .*{said}[^\n]*$"):
        rootfs_deb.read(path)


def test_damaged_content(tmp_path: Path) -> None:
    data = tar([file("a", bytes(range(256)) * 400)], "w:xz")
    path = tmp_path / "a.deb"
    path.write_bytes(ar(_parts(data_tar_xz=data[: len(data) // 2])))
    with pytest.raises(DebError, match=r"^a\.deb: data\.tar\.xz is damaged"):
        list(rootfs_deb.read(path).members())


def test_path_outside_the_root(tmp_path: Path) -> None:
    path = deb(tmp_path, "evil", [file("../../etc/passwd")])
    with pytest.raises(DebError, match="leaves the root"):
        list(rootfs_deb.read(path).members())


def test_special_file(tmp_path: Path) -> None:
    path = deb(tmp_path, "evil", [Member("dev/null", "c", 0o666, 0, 0)])
    with pytest.raises(DebError, match="/dev/null is a special file"):
        list(rootfs_deb.read(path).members())
