"""LayerWriter: what a container engine would unpack, and that nothing but the calls decides it."""

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from images.oci import blob, layer

MTIME = 1767225600


def write(path: Path) -> layer.LayerWriter:
    out = layer.LayerWriter(path, MTIME)
    out.owner = "one"
    out.file("usr/bin/tool", b"#!/bin/sh\n", mode=0o755)
    out.file("usr/share/big", io.BytesIO(b"x" * 3_000_000), size=3_000_000)
    out.symlink("bin", "usr/bin")
    out.directory("var/lib/moet", mode=0o750, uid=1000, gid=1000)
    return out


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as tar:
        return {info.name: info for info in tar.getmembers()}


def test_unpacks_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write(path).close("a")
    found = members(path)
    assert list(found) == [
        "usr", "usr/bin", "usr/bin/tool", "usr/share", "usr/share/big", "bin",
        "var", "var/lib", "var/lib/moet",
    ]  # fmt: skip
    assert found["usr/bin/tool"].mode == 0o755 and found["usr/share/big"].size == 3_000_000
    assert found["bin"].issym() and found["bin"].linkname == "usr/bin"
    assert (found["var/lib/moet"].uid, found["var/lib/moet"].mode) == (1000, 0o750)
    assert {info.mtime for info in found.values()} == {MTIME}
    assert {info.uname for info in found.values()} == {""}


def test_descriptor_is_true(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    made = write(path).close("a", "comment")
    data = path.read_bytes()
    assert made.digest == "sha256:" + hashlib.sha256(data).hexdigest() and made.size == len(data)
    assert made.diff_id == "sha256:" + hashlib.sha256(gzip.decompress(data)).hexdigest()
    layer.write_descriptor(made, tmp_path / "a.json")
    assert layer.read_descriptor(tmp_path / "a.json") == made


def test_listing_is_true(tmp_path: Path) -> None:
    out = write(tmp_path / "a.tar.gz")
    out.close("a")
    layer.write_listing(out.entries, tmp_path / "a.files.json")
    listing = {entry.path: entry for entry in layer.read_listing(tmp_path / "a.files.json")}
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert listing["usr/bin/tool"] == layer.Entry("usr/bin/tool", "f", 0o755, 10, digest, "one")
    assert listing["usr/share/big"].content == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert sorted(listing) == sorted(members(tmp_path / "a.tar.gz"))


def test_twice_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.gz", tmp_path / "deeper" / "second.tar.gz"
    second.parent.mkdir()
    assert write(first).close("a") == write(second).close("a")
    assert first.read_bytes() == second.read_bytes()


def test_compressor_is_the_pinned_one(tmp_path: Path) -> None:
    # A known answer: another ISA-L, or a processor without SSE4.2, compresses differently, and every
    # digest of every image would change with it.
    out = layer.LayerWriter(tmp_path / "a.tar.gz", MTIME)
    out.file("words", b"".join(hashlib.sha256(b"%d" % (n % 700)).hexdigest().encode() for n in range(20_000)))
    assert out.close("a").digest == "sha256:6be9bec02bf7ed55a6bed3605059670d3f9c1203e2227e551f574e3ca7a243de"


def test_same_file_twice_is_kept_once(tmp_path: Path) -> None:
    out = write(tmp_path / "a.tar.gz")
    out.owner = "two"
    out.file("usr/bin/tool", b"#!/bin/sh\n", mode=0o755)
    out.close("a")
    assert out.entries["usr/bin/tool"].owner == "one"
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames().count("usr/bin/tool") == 1


@pytest.mark.parametrize("other", [b"#!/bin/bash\n", io.BytesIO(b"#!/bin/bash\n")])
def test_other_bytes_name_both_packages(tmp_path: Path, other: bytes | io.BytesIO) -> None:
    out = write(tmp_path / "a.tar.gz")
    out.owner = "two"
    with pytest.raises(layer.LayerError, match="/usr/bin/tool: installed by one and by two"):
        out.file("usr/bin/tool", other, size=12)


def test_file_where_a_directory_is(tmp_path: Path) -> None:
    out = write(tmp_path / "a.tar.gz")
    with pytest.raises(layer.LayerError, match="/usr/bin"):
        out.file("usr/bin", b"")
    with pytest.raises(layer.LayerError, match="/usr/bin/tool"):
        out.directory("usr/bin/tool")


@pytest.mark.parametrize("path", ["../etc/passwd", "..", "/", "."])
def test_paths_stay_below_the_root(tmp_path: Path, path: str) -> None:
    out = layer.LayerWriter(tmp_path / "a.tar.gz", MTIME)
    with pytest.raises(layer.LayerError, match="below the root"):
        out.file(path, b"")


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(layer.LayerError), layer.LayerWriter(tmp_path / "a.tar.gz", MTIME) as out:
        out.file("..", b"")
    assert list(tmp_path.iterdir()) == []


def test_label_is_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    blob.label(path, "sha256:" + hashlib.sha256(b"data").hexdigest())
    try:
        value = os.getxattr(path, blob.XATTR)
    except OSError:
        pytest.skip("this file system has no extended attributes")
    assert value == hashlib.sha256(b"data").digest()
