"""The rootfs command: one layer from any folder and order; bad input leaves one line and no file."""

import json
import random
import tarfile
from pathlib import Path

import pytest

from images.oci import layer, rootfs, rootfs_policy
from images.oci.rootfs_testing import deb, directory, file, link

POLICY = """
[[drop]]
globs = ["usr/share/doc/*"]
reason = "documentation"

[[link]]
path = "usr/bin/awk"
target = "mawk"
owner = "mawk"

[[directory]]
path = "tmp"
mode = "1777"
uid = 0
gid = 0
owner = "base-files"
"""


def packages(folder: Path) -> list[Path]:
    folder.mkdir()
    return [
        deb(folder, "base-files", [directory("etc"), file("etc/debian_version", b"12\n"), file("usr/share/doc/x/y")]),
        deb(folder, "mawk", [directory("bin"), file("bin/mawk", b"awk", 0o755)]),
        deb(folder, "libx", [link("lib/x", "../bin/mawk")]),
    ]


def build(folder: Path, debs: list[Path], policy: str = POLICY) -> int:
    folder.mkdir(exist_ok=True)
    (folder / "policy.toml").write_text(policy)
    return rootfs.main([
        *("--name", "rootfs", "--comment", "a root", "--mtime", "1767225600"),
        *("--policy", str(folder / "policy.toml"), "--out", str(folder / "r"), *map(str, debs)),
    ])


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("r.")}


def test_same_bytes_from_any_folder_and_order(tmp_path: Path) -> None:
    first = packages(tmp_path / "a")
    second = packages(tmp_path / "somewhere-else")
    random.Random(1).shuffle(second)
    assert build(tmp_path / "one", sorted(first)) == 0
    assert build(tmp_path / "two", second) == 0
    assert outputs(tmp_path / "one") == outputs(tmp_path / "two")
    assert sorted(outputs(tmp_path / "one")) == ["r.files.json", "r.json", "r.tar.gz"]


def test_layer(tmp_path: Path) -> None:
    assert build(tmp_path / "one", packages(tmp_path / "a")) == 0
    with tarfile.open(tmp_path / "one/r.tar.gz") as tar:
        entries = {info.name: info for info in tar.getmembers()}
    assert list(entries) == sorted(entries)
    assert {info.mtime for info in entries.values()} == {1767225600}
    assert (entries["tmp"].mode, entries["usr/bin/mawk"].mode) == (0o1777, 0o755)
    assert entries["usr/lib/x"].linkname == "../bin/mawk"
    assert "usr/share/doc" not in entries
    owners = {entry.path: entry.owner for entry in layer.read_listing(tmp_path / "one/r.files.json")}
    assert (owners["usr/bin/awk"], owners["etc/debian_version"]) == ("mawk", "base-files")
    assert json.loads((tmp_path / "one/r.json").read_text())["comment"] == "a root"


def test_bad_input_leaves_one_line_and_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    debs = packages(tmp_path / "a")
    bad = tmp_path / "bad.deb"
    bad.write_bytes(b"<html>")
    clash = deb(tmp_path, "gawk", [file("usr/bin/mawk", b"other")])
    for inputs, policy, said in (
        ([*debs, bad], POLICY, "layer rootfs: bad.deb: not an ar archive"),
        ([*debs, clash], POLICY, "layer rootfs: /usr/bin/mawk: gawk and mawk install it"),
        (debs[1:], POLICY, "layer rootfs: the policy's usr/share/doc/* matches nothing"),
        (debs, "[[drip]]\n", "layer rootfs: policy.toml: unknown table drip"),
        ([*debs, tmp_path / "none.deb"], POLICY, f"layer rootfs: {tmp_path / 'none.deb'}: No such file or directory"),
    ):
        assert build(tmp_path / "out", inputs, policy) == 1
        error = capsys.readouterr().err
        assert error.startswith(said)
        assert error.count("\n") == 1
        assert outputs(tmp_path / "out") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[drop", "not TOML"),
        ('[[drop]]\nglobs = ["a"]\n', "gives no reason"),
        ('[[link]]\npath = "a"\n', "lacks a key or has a bad one"),
        ('[[link]]\npath = "a"\ntarget = "b"\nowner = "c"\nmode = "1"\n', "lacks a key or has a bad one"),
        ('[[directory]]\npath = "a"\nmode = "999"\nuid = 0\ngid = 0\nowner = "c"\n', "lacks a key or has a bad one"),
    ],
)
def test_bad_policy(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(rootfs_policy.PolicyError, match=rf"^p\.toml: .*{said}"):
        rootfs_policy.read(tmp_path / "p.toml")
