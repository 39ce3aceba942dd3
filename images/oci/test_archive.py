"""The fast zip reader against zipfile itself, and on broken members."""

import zipfile
from pathlib import Path

import pytest

from images.oci.archive import Archive

MEMBERS = {"empty": b"", "text": b"words " * 100_000, "noise": bytes(range(256)) * 1000}


@pytest.fixture(params=[zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", request.param) as out:
        for name, data in MEMBERS.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = request.param
            out.writestr(info, data)
    return tmp_path / "a.zip"


def test_reads_what_zipfile_reads(path: Path) -> None:
    with Archive(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == MEMBERS
        with archive.open(archive.getinfo("text")) as stream:
            assert stream.read(6) == b"words "


def test_broken_members(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("text", b"words " * 1000)
    whole = path.read_bytes()
    start = 30 + len("text")
    for at, value in ((start, 0xFF), (start + 3, whole[start + 3] ^ 0x10)):
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        with Archive(path) as archive, pytest.raises(zipfile.BadZipFile, match="text: "):
            archive.read("text")
