"""Tars and layers made to do harm: refused in one line, and read no further than the limits."""

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.inspect import limits, source, tar
from images.inspect.errors import InspectError
from images.inspect.example import blob_path, layout_documents, meddled, member, put, raw_tar, with_layer
from images.inspect.stream import Chunks, Layer
from images.inspect.text import brief, plain
from images.manifest import model
from tests.engine.synthetic import make_moet_layout
from tools.cli.errors import UserError

NAME = model.PATH[1:]


@pytest.fixture(scope="module")
def r1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_moet_layout(tmp_path_factory.mktemp("r1") / "layout")


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        source.open_image(str(path), None)
    message = str(caught.value)
    assert message.isprintable()
    return message


def entries(data: bytes) -> list[tar.Entry]:
    return [entry for entry, _ in tar.walk(Chunks(iter([data]), "x"), "x")]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (member("/etc/passwd"), "absolute"),
        (member("usr/../../etc/passwd"), "climbs out"),
        (member(".."), "climbs out"),
        (member("dev/sda", tarfile.BLKTYPE), "device node"),
        (member("dev/tty", tarfile.CHRTYPE), "device node"),
        (member("pipe", tarfile.FIFOTYPE), "named pipe"),
        (member("hard", tarfile.LNKTYPE, "../../etc/passwd"), "climbs out"),
        (member("odd", b"Z"), "of type"),
        (member("a\x1b[2J/../b"), r"\x1b"),
        (member("x/" * 200 + "../" * 300 + "y"), "climbs out"),
    ],
)
def test_entries_in_a_layer(r1: Path, tmp_path: Path, bad: tarfile.TarInfo, words: str) -> None:
    """Above the manifest's layer, so that it is the first to be read."""
    message = refusal(with_layer(r1, tmp_path / "bad", raw_tar((bad, b""))))
    assert words in message and "layer 6 of 6" in message


def test_manifest_that_is_a_link(r1: Path, tmp_path: Path) -> None:
    link = raw_tar((member(NAME, tarfile.SYMTYPE, "/etc/shadow"), b""))
    assert "is a link; a file was expected" in refusal(with_layer(r1, tmp_path / "link", link))


def test_manifest_that_another_layer_hides(r1: Path, tmp_path: Path) -> None:
    """What counts is the uppermost, which is not the one that the configuration vouches for."""
    assert "was altered" in refusal(with_layer(r1, tmp_path / "hidden", raw_tar((member(NAME), b"{}"))))


def test_manifest_of_a_size_beyond_sense(r1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MANIFEST", 1000)
    assert "at most 1,000 are read" in refusal(r1)


def test_entry_that_claims_more_than_there_is(r1: Path, tmp_path: Path) -> None:
    info = member("big")
    info.size = 1 << 40
    header = info.tobuf(tarfile.GNU_FORMAT)
    assert "ends in the middle" in refusal(with_layer(r1, tmp_path / "short", header + bytes(4096)))


def test_gzip_bomb(r1: Path, tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte: given up early, and never held."""
    info = member("zeros")
    info.size = 1 << 30
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb", mtime=0) as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(1 << 10):
            out.write(bytes(1 << 20))

    def add(config: dict[str, dict[str, list[str]]], image: dict[str, list[dict[str, str]]]) -> None:
        config["rootfs"]["diff_ids"].append(f"sha256:{'0' * 64}")
        image["layers"].append(put(tmp_path / "bomb", bomb.getvalue(), image["layers"][0]["mediaType"]))

    directory = meddled(r1, tmp_path / "bomb", add)
    tracemalloc.start()
    message = refusal(directory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "a compression bomb" in message
    assert peak < 40 << 20


def test_search_ends(r1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEARCH", 1 << 20)
    big = with_layer(r1, tmp_path / "big", raw_tar((member("big"), bytes(2 << 20))))
    assert "unpacks to more than 1 MiB" in refusal(big)


def test_names_without_end() -> None:
    info = member("x", tarfile.GNUTYPE_LONGNAME)
    info.size = 1 << 33
    with pytest.raises(InspectError, match="bytes of names"):
        entries(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))


@pytest.mark.parametrize("header", [b"9 a=b\n", b"x a=b\n", b"99 path=../b\n", b"0 \n", b"6 a=b", b"-7 a=b\n"])
def test_pax_headers_that_are_none(header: bytes) -> None:
    info = member("x", tarfile.XHDTYPE)
    info.size = len(header)
    data = info.tobuf(tarfile.GNU_FORMAT) + header.ljust(512, b"\0") + member("y").tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(InspectError):
        entries(data)


def test_pax_headers_count() -> None:
    raw = io.BytesIO()
    name = "deep/" * 60 + "\u00e9"
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as out:
        out.addfile(member(name))
    assert [entry.path for entry in entries(raw.getvalue())] == [name]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as out:
        out.addfile(member("deep/" * 60 + "../" * 70 + "x"))
    with pytest.raises(InspectError, match="climbs out"):
        entries(raw.getvalue())


def test_walk_gives_contents_and_passes_over_what_is_not_asked_for() -> None:
    data = raw_tar((member("a"), b"1" * 1000), (member("./b"), b"2" * 513), (member("c", tarfile.DIRTYPE), b""))
    seen = {}

    def pieces() -> Iterator[bytes]:
        yield from (data[at : at + 7] for at in range(0, len(data), 7))

    for entry, content in tar.walk(Chunks(pieces(), "x"), "x"):
        seen[entry.path] = b"".join(content.chunks()) if entry.path == "b" else entry.size
    assert seen == {"a": 1000, "b": b"2" * 513, "c": 0}


def test_layer_is_held_against_both_hashes() -> None:
    from images.inspect.documents import digest

    bare = raw_tar((member("a"), b"1"))
    packed = gzip.compress(bare) + gzip.compress(b"")
    Layer(iter([packed[:5], packed[5:]]), "x", 1 << 20).check(digest(packed), len(packed), digest(bare))
    for expected in ((digest(b""), len(packed)), (digest(packed), 1)):
        with pytest.raises(InspectError, match="was expected"):
            Layer(iter([packed]), "x", 1 << 20).check(*expected, digest(bare))
    with pytest.raises(InspectError, match="unpacks to"):
        Layer(iter([packed]), "x", 1 << 20).check(None, None, digest(b""))
    with pytest.raises(InspectError, match="ends too early"):
        Layer(iter([packed[:-30]]), "x", 1 << 20).check(None, None, digest(bare))
    with pytest.raises(InspectError, match="packed with zstd"):
        Layer(iter([b"\x28\xb5\x2f\xfd0000"]), "x", 1 << 20).check(None, None, digest(bare))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (member("a/layer.tar", tarfile.SYMTYPE, "/etc/shadow"), "links out of the tar"),
        (member("a/layer.tar", tarfile.SYMTYPE, "../../x"), "links out of the tar"),
        (member("/manifest.json"), "absolute"),
        (member("dev", tarfile.CHRTYPE), "device node"),
    ],
)
def test_saved_tars(tmp_path: Path, bad: tarfile.TarInfo, words: str) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(raw_tar((bad, b"")))
    assert words in refusal(path)


def test_saved_tars_name_files_within(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    for listed, words in (
        ([{"Config": "../../etc/passwd", "Layers": []}], "climbs out"),
        ([{"Config": "a.json", "Layers": ["/dev/zero"]}], "absolute"),
        ([{"Config": 1, "Layers": []}], "names a file that is none"),
        ([{"Config": "a.json", "Layers": 1}], "no list of layers"),
        ([1], "is no list of images"),
        ([{"Config": "loop", "Layers": []}], "chain of links without an end"),
    ):
        loop = member("loop", tarfile.SYMTYPE, "loop")
        path.write_bytes(raw_tar((loop, b""), (member("manifest.json"), json.dumps(listed).encode())))
        assert words in refusal(path)


def test_packed_tar_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(bytes(10240)))
    assert "is packed with gzip; unpack it first" in refusal(path)


def test_text_for_terminals() -> None:
    assert plain("a\x1b[31mb\u202ec\x9bd\u2028e\ud800") == r"a\x1b[31mb\u202ec\x9bd\u2028e\ud800"
    assert plain("\u00e9 \u4e2d") == "\u00e9 \u4e2d"
    assert brief("a\n b\t" * 99, 10) == "a b a b..."


def test_example_makes_what_it_says(r1: Path, tmp_path: Path) -> None:
    """The copies above differ from a good image in nothing but what they are meant to."""
    good = with_layer(r1, tmp_path / "good", raw_tar((member("fine"), b"1")))
    assert source.open_image(str(good), None).manifest.line == "dsv41"
    assert len(layout_documents(good)["layers"]) == 6 and blob_path(good, layout_documents(good)["config"]["digest"])
