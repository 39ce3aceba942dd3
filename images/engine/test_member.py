"""One file out of a tar as an engine sends it, whole or not."""

import io
import tarfile
from collections.abc import Iterator

import pytest

from images.engine import member
from images.engine.errors import EngineError


def _tar(data: bytes = b"words", kind: bytes = tarfile.REGTYPE, name: str = "a") -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size, entry.linkname = kind, len(data), "/etc/passwd" if kind == tarfile.SYMTYPE else ""
        tar.addfile(entry, io.BytesIO(data))
    return raw.getvalue()


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 7] for at in range(0, len(data), 7))


def test_a_file_in_pieces() -> None:
    assert member.first_file(_pieces(_tar(b"x" * 5000)), "/a") == b"x" * 5000
    assert member.first_file(_pieces(_tar(name="../../a")), "/a") == b"words"


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_file(kind: bytes) -> None:
    assert member.first_file(_pieces(_tar(b"", kind)), "/a") is None


@pytest.mark.parametrize("data", [b"no tar at all" * 100, _tar(b"x" * 5000)[:2000]], ids=["no tar", "cut"])
def test_what_is_not_whole(data: bytes) -> None:
    with pytest.raises(EngineError, match=r"^/a: .*; try again$"):
        member.first_file(_pieces(data), "/a")


def test_what_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "_LIMIT", 100)
    with pytest.raises(EngineError, match="has 101 bytes; at most 100"):
        member.first_file(_pieces(_tar(b"x" * 101)), "/a")
