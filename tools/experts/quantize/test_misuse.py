"""Runs and packs that are used in ways that nobody meant."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from serving.experts.storage.header import Header
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError
from serving.experts.storage.writer import Writer
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.experts.checkpoint.checkpoint import INDEX, Checkpoint
from tools.experts.checkpoint.headers import read
from tools.experts.quantize import dequantize, inspect, journal, packs, report, run, verify
from tools.experts.quantize.counted import ByExpert
from tools.experts.quantize.made_up import checkpoint, contents


class EnoughError(Exception):
    pass


def quantize(source: Path, pack: Path, **given: Any) -> run.Result:
    with Checkpoint.open(source, given.pop("layers", None)) as opened:
        return run.run(opened, pack, **({"threads": 1} | given))


def stopped(source: Path, pack: Path, experts: int, **given: Any) -> None:
    """A run that ends after so many experts."""
    left = [experts + 1]

    def advance(_: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise EnoughError

    with pytest.raises(EnoughError):
        quantize(source, pack, advance=advance, **given)


def test_report_is_of_this_run_only(tmp_path: Path) -> None:
    """What was counted for other layers is no part of it."""
    source = checkpoint(tmp_path / "model")
    stopped(source, tmp_path / "pack", 2, layers=[0])
    again = quantize(source, tmp_path / "pack", layers=[1], restart=True)
    fresh = quantize(source, tmp_path / "fresh/pack", layers=[1])
    assert again.counts.keys() == fresh.counts.keys() and again.report == fresh.report
    assert contents(tmp_path / "pack") == contents(tmp_path / "fresh/pack")


@pytest.mark.parametrize("target", ["precious", "nothing"])
def test_link_in_place_of_the_journal_is_refused(target: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / journal.NAME).symlink_to(tmp_path / target)
    with pytest.raises(StorageError, match=rf"{journal.NAME}: is a symbolic link"):
        quantize(source, tmp_path / "pack")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "nothing").exists()


def test_pipe_in_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")
    (tmp_path / "pack").mkdir()
    os.mkfifo(tmp_path / "pack" / journal.NAME)
    with pytest.raises(StorageError, match=rf"{journal.NAME}: is no regular file"):
        quantize(source, tmp_path / "pack")


@pytest.mark.parametrize("full", [False, True])
def test_journal_on_a_full_disk_is_named(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full: not a byte goes in; else half of a line does, and the rest in a second call."""
    source = checkpoint(tmp_path / "model")
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if full and b"[1,0," in data:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: max(1, len(data) // 2)])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        if full:
            with pytest.raises(StorageError, match=rf"{journal.NAME}: no space left on its file system"):
                quantize(source, tmp_path / "pack")
        else:
            stopped(source, tmp_path / "pack", 4)
    assert quantize(source, tmp_path / "pack").resumed == (3 if full else 4)


def test_folders_that_are_taken(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")
    before = contents(source)
    (tmp_path / "link").symlink_to(source)
    for folder in (source, tmp_path / "link", tmp_path / "model/../model"):
        with pytest.raises(UserError, match=r"is the checkpoint's folder"):
            quantize(source, folder)
        with pytest.raises(UserError, match=r"is the checkpoint's folder"):
            quantize(source, tmp_path / "pack", delta="fp4", delta_path=folder)
    with pytest.raises(UserError, match=r"is the base pack's folder"):
        quantize(source, tmp_path / "pack", delta="fp4", delta_path=tmp_path / "x/../pack")
    assert contents(source) == before and not (tmp_path / "pack").exists()


def test_names_that_follow_no_rule(tmp_path: Path) -> None:
    """A pack states names by a rule; it would give these tensors back under others."""
    source = checkpoint(tmp_path / "model")
    index, raw = source / INDEX, (source / "model-00002-of-00002.safetensors").read_bytes()
    old, new = b"layers.1.ffn.experts.2.w1", b"Layers.layers.1.ffn.experts.2.w1"
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length].replace(old, new)
    (source / "model-00002-of-00002.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + raw[8 + length :]
    )
    index.write_bytes(index.read_bytes().replace(old, new))
    assert new.decode() + ".weight" in read(source / "model-00002-of-00002.safetensors")[1]
    with pytest.raises(UserError, match=r"Layers\.layers\.1\.ffn\.experts\.2\.w1\.weight: is not named as layers\.0\."):
        quantize(source, tmp_path / "pack")


def test_report_is_told_before_the_pack_is_there(tmp_path: Path) -> None:
    """What keeps it may fail, or be killed: the same command then goes on, and tells it again."""
    source = checkpoint(tmp_path / "model")
    told: list[report.Report] = []

    def fail(found: report.Report, counts: ByExpert) -> None:
        assert len(counts) == 6 and not (tmp_path / "pack/experts.json").exists()
        told.append(found)
        raise EnoughError

    with pytest.raises(EnoughError):
        quantize(source, tmp_path / "pack", reported=fail)
    result = quantize(source, tmp_path / "pack", reported=lambda found, _: told.append(found))
    assert result.resumed == 6 and told == [result.report, result.report]


def forged(pack: Path, path: Path, **extra: object) -> Path:
    """A sound container whose sidecar says other things."""
    with Container.open(pack) as there:
        header, records = there.header, {key: bytes(there.read(*key)) for key in there.present()}
    values = {**header.document(), "extra": {**header.extra, **extra}}
    with Writer.open(path, Header(**{name: values[name] for name in Header.__dataclass_fields__})) as writer:
        for key, record in records.items():
            writer.put(*key, record)
        writer.commit()
    return path


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    quantize(checkpoint(folder / "model"), folder / "pack", delta="quintal")
    return folder / "pack"


@pytest.mark.parametrize(
    "sizes", [(32, 256), (-128, -64), (0, 0), (64.5, 127), ("128", "64"), (True, 8192), (None, 64), (128, [64])]
)
def test_pack_of_a_geometry_that_is_none(sizes: tuple[object, object], pack: Path, tmp_path: Path) -> None:
    path = forged(pack, tmp_path / "forged", hidden=sizes[0], intermediate=sizes[1])
    with pytest.raises(UserError, match=rf"{path}: its sidecar states no geometry of 6,912 bytes a record"):
        packs.Pack(path)


NAME = "layers.{layer}.experts.{expert}"


@pytest.mark.parametrize(
    "names",
    [
        None,
        5,
        [],
        [5],
        [{"first": 1, "names": dict.fromkeys(("w1", "w2", "w3"), NAME)}],
        [{"first": "0", "names": dict.fromkeys(("w1", "w2", "w3"), NAME)}],
        [{"first": 0, "names": {"w1": NAME}}],
        [{"first": 0, "names": dict.fromkeys(("w1", "w2", "w3"), NAME)}],
        [{"first": 0, "names": {one: f"{one}.{{layer}}" for one in ("w1", "w2", "w3")}}],
        [{"first": 0, "names": {one: f"{one}.{{layer.__class__}}.{{expert}}" for one in ("w1", "w2", "w3")}}],
        [{"first": 0, "names": {one: f"{one}.{{layer:>99999999}}.{{expert}}" for one in ("w1", "w2", "w3")}}],
        [{"first": 0, "names": {one: f"{one}.{{layer}}.{{expert}}.{{0}}" for one in ("w1", "w2", "w3")}}],
    ],
)
def test_pack_with_names_that_are_none(names: object, pack: Path, tmp_path: Path) -> None:
    path = forged(pack, tmp_path / "forged", names=names)
    with packs.Pack(path) as opened, pytest.raises(UserError, match=rf"{path}: its sidecar states no names of tensors"):
        dequantize.write(opened, tmp_path / "out", "bf16")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["forged"]


@pytest.mark.parametrize("stated", [5, {}, {"gate": [{}]}, {"gate": 5}])
def test_pack_with_a_report_that_is_none(stated: object, pack: Path, tmp_path: Path) -> None:
    path = forged(pack, tmp_path / "forged", report=stated)
    with pytest.raises(UserError, match=rf"{path}: its sidecar states no report"):
        inspect.inspect(path, None, None, Output())


def verified(pack: Path, source: Path, delta: Path | None = None) -> verify.Verified:
    with Output().progress() as bar:
        return verify.verify(pack, delta, source, 0, 0, bar)


def changed(source: Path, layer: int, expert: int, matrix: str, part: str, value: int) -> None:
    """Changes a byte of a tensor of a checkpoint; its identity is of headers and stays."""
    tensor = Checkpoint.open(source)._matrices[layer, expert, matrix][part]
    with tensor.path.open("r+b") as file:
        file.seek(tensor.offset)
        file.write(bytes([value]))


def test_verify_says_that_the_checkpoint_has_changed(tmp_path: Path) -> None:
    """Each expert has its line, also where the checkpoint's cannot be quantized any more."""
    source = checkpoint(tmp_path / "model")
    quantize(source, tmp_path / "pack")
    changed(source, 0, 1, "w3", "scale", 255)
    changed(source, 1, 0, "w1", "scale", 7)
    found = {(one.layer, one.expert): one.differences for one in verified(tmp_path / "pack", source).compared}
    assert found.pop((0, 1)) == ("layers.0.ffn.experts.1.w3.weight: a scale is NaN",)
    assert found.pop((1, 0))[0].startswith("w1 scales: 1 of 256 bytes differ")
    assert len(found) == 4 and not any(found.values())


def test_verify_says_which_delta_belongs_to_other_codes(tmp_path: Path) -> None:
    """Same checkpoint by its headers, but other weights."""
    source = checkpoint(tmp_path / "model")
    quantize(source, tmp_path / "pack")
    changed(source, 1, 2, "w2", "weight", 0xFF ^ Checkpoint.open(source).read(1, 2, "w2").codes[0, 0])
    quantize(source, tmp_path / "other", delta="fp4")
    found = verified(tmp_path / "pack", source, tmp_path / "other-fp4")
    assert not found.sound and len(found.compared) == 6
    wrong = [one for one in found.compared if one.differences]
    assert [(one.layer, one.expert) for one in wrong] == [(1, 2)]
    assert json.loads(json.dumps(verify.document(found), allow_nan=False))["sound"] is False
