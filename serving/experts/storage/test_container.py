from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.experts.storage import made_up, sidecar
from serving.experts.storage.header import Header
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import AlreadyCompleteError, StorageError
from serving.experts.storage.writer import Writer


@pytest.fixture
def there(tmp_path: Path) -> Path:
    made_up.write(tmp_path / "c")
    return tmp_path / "c"


def test_what_was_put_is_read(there: Path) -> None:
    data = made_up.records(made_up.header())
    with Container.open(there) as opened:
        assert opened.present() == sorted(data) and opened.header == made_up.header()
        for key, record in data.items():
            assert opened.read(*key) == record
            buffer = bytearray(made_up.SLOT + 7)
            assert opened.read(*key, into=buffer) == record and buffer[-7:] == bytes(7)


def test_offsets_are_those_of_the_format(there: Path) -> None:
    raw, of = made_up.data_file(there).read_bytes(), made_up.header()
    for (layer, expert), record in made_up.records(of).items():
        at = (layer * 3 + expert) * 12_288
        assert raw[at : at + made_up.SLOT] == record
    assert len(raw) == 5 * 3 * 12_288 + 4096
    assert raw[: 2 * 3 * 12_288] == bytes(2 * 3 * 12_288)


def test_layers_without_records_take_no_room(tmp_path: Path) -> None:
    of = made_up.header(layers=(200,), experts=3, slot_bytes=4096)
    made_up.write(tmp_path, of)
    with Container.open(tmp_path) as opened:
        assert opened.apparent == 201 * 3 * 4096 + 4096
        assert opened.allocated < 100_000


def test_same_content_same_bytes(tmp_path: Path) -> None:
    a = made_up.write(tmp_path / "a")
    with Writer.open(tmp_path / "b", made_up.header(), sync_bytes=1) as writer:
        for key, record in reversed(list(made_up.records(made_up.header()).items())):
            writer.put(*key, record)
        b = writer.commit()
    assert a == b and made_up.files(tmp_path / "a") == made_up.files(tmp_path / "b")


def test_facts_known_at_the_end(tmp_path: Path) -> None:
    of = made_up.header()
    with Writer.open(tmp_path, of) as writer:
        for key in writer.missing():
            writer.put(*key, made_up.records(of)[key])
        writer.commit(extra={"bias": 0.001})
    assert dict(Container.open(tmp_path).header.extra) == {"hidden": 64, "bias": 0.001}
    with pytest.raises(AlreadyCompleteError, match="complete already"):
        made_up.write(tmp_path, of)


def test_absent_records(tmp_path: Path) -> None:
    of = made_up.header()
    some = {(4, 1): made_up.records(of)[4, 1]}
    with Writer.open(tmp_path, of) as writer:
        writer.put(4, 1, some[4, 1])
        with pytest.raises(StorageError, match="5 of 6 records are missing, first layer 2, expert 0"):
            writer.commit()
        writer.commit(absent=True)
    with Container.open(tmp_path) as opened:
        assert opened.present() == [(4, 1)] and opened.read(4, 1) == some[4, 1]
        with pytest.raises(StorageError, match="layer 4, expert 0 is absent"):
            opened.read(4, 0)
        for key in ((3, 0), (4, 3), (4, -1)):
            with pytest.raises(StorageError, match="no such record"):
                opened.read(*key)


@pytest.mark.parametrize("sync_bytes", [1, 1 << 20])
def test_record_put_twice_has_the_same_bytes_or_is_refused(tmp_path: Path, sync_bytes: int) -> None:
    of = made_up.header(layers=(0,), experts=1)
    with Writer.open(tmp_path, of, sync_bytes=sync_bytes) as writer:
        writer.put(0, 0, bytes(made_up.SLOT))
        writer.put(0, 0, bytes(made_up.SLOT))
        with pytest.raises(StorageError, match="was put already, with other bytes"):
            writer.put(0, 0, b"x" * made_up.SLOT)
        writer.commit()
    assert Container.open(tmp_path).read(0, 0) == bytes(made_up.SLOT)


@pytest.mark.parametrize("put", [b"", bytes(made_up.SLOT - 1), bytes(made_up.SLOT + 1)])
def test_record_of_another_size(tmp_path: Path, put: bytes) -> None:
    with (
        Writer.open(tmp_path, made_up.header()) as writer,
        pytest.raises(StorageError, match="expected 10,001"),
    ):
        writer.put(2, 0, put)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "W 2"}, {"layers": ()}, {"layers": (2, 2)}, {"layers": (4, 2)}, {"layers": (-1,)}, {"experts": 0},
        {"slot_bytes": 0}, {"stride": 4096}, {"stride": 12_289}, {"checkpoint": "5E" * 32}, {"checkpoint": "5e"},
        {"tag": "two\nlines"}, {"extra": {"x": float("nan")}}, {"extra": {"x": b""}}, {"extra": {1: 2}},
    ],
)  # fmt: skip
def test_header_out_of_range(change: dict[str, Any]) -> None:
    with pytest.raises(StorageError, match="expected"):
        made_up.header(**change)


def test_sidecar_is_read_as_it_was_written() -> None:
    of: Header = made_up.header(extra={"a": [1, None, {"b": "ü"}], "c": 0.1})
    sums = {(2, 0): 0, (4, 2): (1 << 64) - 1}
    found = sidecar.read(sidecar.write(of, sums), "it")
    assert found.header == of and found.checksums == sums


def test_journal_ends_where_a_writer_was_stopped() -> None:
    of = made_up.header()
    lines = sidecar.journal_entry((2, 0), 7) + sidecar.journal_entry((4, 2), 8)
    for size in range(len(lines) + 1):
        found, whole = sidecar.journal(lines[:size], of)
        assert len(found) == size // 20 and whole == size // 20 * 20
    cases: list[Callable[[bytes], bytes]] = [
        lambda one: one[:-1] + b"\xff",
        lambda one: b"\x01" + one[1:],
        lambda one: bytes(20),
    ]
    for case in cases:
        assert sidecar.journal(case(lines[:20]) + lines[20:], of) == ({}, 0)
