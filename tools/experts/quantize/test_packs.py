import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from kernels.common import formats, planes
from serving.experts.storage.refusal import StorageError
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.experts.checkpoint.checkpoint import MATRICES, Checkpoint
from tools.experts.quantize import dequantize, numpy_form, options, packs, run, verify
from tools.experts.synthetic.synthetic import write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two checkpoints and their packs, deltas of both kinds."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("glm-5.2-nvfp4", "deepseek-v4-flash"):
        source = write(folder / name, name, layers=2, experts=2, hidden=128, intermediate=64, drafter="v4" in name)
        for delta in ("fp4", "quintal"):
            with Checkpoint.open(source) as opened:
                run.run(
                    opened, folder / f"{name}.{delta}", delta=delta, threads=2, delta_path=folder / f"{name}-{delta}"
                )
    return folder


@pytest.mark.parametrize("delta", ["fp4", "quintal"])
@pytest.mark.parametrize("name", ["glm-5.2-nvfp4", "deepseek-v4-flash"])
def test_values(name: str, delta: str, made: Path) -> None:
    layer = 4 if "glm" in name else 1
    with Checkpoint.open(made / name) as source:
        quantized = {one: numpy_form.quantize(source.read(layer, 1, one), "auto") for one in MATRICES}
    with (
        packs.Pack(made / f"{name}.{delta}") as two,
        packs.Pack(made / f"{name}.{delta}", made / f"{name}-{delta}") as four,
    ):
        assert (two.kind, four.kind) == (None, delta)
        for one, values in two.values(layer, 1).items():
            expected = planes.decode(planes.to_codes(quantized[one].nibbles), quantized[one].scales)
            assert np.array_equal(values, expected)
        for one, values in four.values(layer, 1).items():
            assert np.array_equal(values, planes.decode_nibbles(quantized[one].nibbles, quantized[one].scales))


def test_parts_fill_the_slots() -> None:
    for kind, size in (("base", planes.base_slot), ("fp4", planes.fp4_slot), ("quintal", planes.quintal_slot)):
        found = list(packs.parts(512, 256, kind))
        ends = [one.offset + one.size for one in found]
        assert [one.offset for one in found] == [0, *ends[:-1]] and ends[-1] == size(512, 256)
    assert [(one.matrix, one.kind) for one in packs.parts(128, 64)] == [
        (matrix, kind) for matrix in ("w1", "w3", "w2") for kind in ("codes", "scales")
    ]


def test_delta_of_something_else(made: Path, tmp_path: Path) -> None:
    base = made / "glm-5.2-nvfp4.quintal"
    with pytest.raises(StorageError, match="checkpoint"):
        packs.Pack(base, made / "deepseek-v4-flash-quintal")
    with pytest.raises(UserError, match="holds w2-pack; expected"):
        packs.Pack(base, base)
    with pytest.raises(StorageError, match="kind"):
        packs.Pack(made / "glm-5.2-nvfp4-quintal")
    with Checkpoint.open(made / "glm-5.2-nvfp4") as source:
        run.run(source, tmp_path / "alt", delta="quintal", zero_mode="alt", threads=1)
    with pytest.raises(StorageError, match="zero_mode"):
        packs.Pack(base, tmp_path / "alt-quintal")


@pytest.mark.parametrize("form", dequantize.FORMS)
def test_dequantized_file_is_what_the_pack_says(form: str, made: Path, tmp_path: Path) -> None:
    name = "glm-5.2-nvfp4"
    told: list[int] = []
    with packs.Pack(made / f"{name}.quintal") as pack:
        dequantize.write(pack, tmp_path / "out", form, None, told.append)
        assert sum(told) == dequantize.total(pack, form, 2)
        values = pack.values(4, 1)
    with safe_open(tmp_path / "out/model-00002-of-00002.safetensors", "numpy") as file:
        for matrix, part in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            base = f"model.layers.4.mlp.experts.1.{part}"
            tensor = file.get_tensor(f"{base}.weight")
            if form == "mxfp4":
                with Checkpoint.open(tmp_path / "out") as again:
                    one = again.read(4, 1, matrix)
                found = numpy_form.dequantize(one)
            else:
                assert tensor.dtype == (np.float32 if form == "f32" else ml_dtypes.bfloat16)
                found = tensor.astype(np.float64)
            assert np.array_equal(found, values[matrix])


def test_four_bits_of_an_mxfp4_checkpoint_come_back_bit_for_bit(made: Path, tmp_path: Path) -> None:
    """Drafter's layer included, to the names that it had."""
    name = "deepseek-v4-flash"
    for delta in ("fp4", "quintal"):
        with packs.Pack(made / f"{name}.{delta}", made / f"{name}-{delta}") as pack:
            dequantize.write(pack, tmp_path / delta, "mxfp4")
        with Checkpoint.open(made / name) as source, Checkpoint.open(tmp_path / delta) as again:
            assert again.layers == source.layers == (0, 1, 2)
            for layer in source.layers:
                for expert in range(2):
                    for matrix in MATRICES:
                        one, other = source.read(layer, expert, matrix), again.read(layer, expert, matrix)
                        assert one.name == other.name
                        assert np.array_equal(one.codes, other.codes) and np.array_equal(one.scales, other.scales)


def test_quantized_again_it_is_the_same_pack(made: Path, tmp_path: Path) -> None:
    """Two bits written as MXFP4 are their own quantization."""
    with packs.Pack(made / "glm-5.2-nvfp4.quintal") as pack:
        dequantize.write(pack, tmp_path / "out", "mxfp4")
        with Checkpoint.open(tmp_path / "out") as again:
            run.run(again, tmp_path / "pack", threads=1)
        with packs.Pack(tmp_path / "pack") as other:
            for key in pack.base.present():
                assert bytes(pack.base.read(*key)) == bytes(other.base.read(*key))


def test_extreme_scales_in_bf16(tmp_path: Path) -> None:
    for byte in (0, 1, 252, 253, 254):
        codes = np.arange(4, dtype=np.uint8)
        values = planes.decode(np.tile(codes, 8), np.array([byte], dtype=np.uint8))[:4]
        with np.errstate(over="ignore"):
            floats = values.astype(np.float32)
            expected = values.astype(ml_dtypes.bfloat16)
        found = (floats.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
        assert np.array_equal(found, expected)
        assert np.isinf(found.astype(float)).tolist() == [byte > 252, False, False, byte > 252]
    assert formats.decode_ue8m0(np.array([254], dtype=np.uint8))[0] == 2.0**127


def test_dequantize_refuses(made: Path, tmp_path: Path) -> None:
    with packs.Pack(made / "glm-5.2-nvfp4.quintal") as pack:
        with pytest.raises(UserError, match="is there already"):
            dequantize.write(pack, tmp_path, "bf16")
        with pytest.raises(UserError, match="no layer 7"):
            dequantize.write(pack, tmp_path / "out", "bf16", [3, 7])
    assert list(tmp_path.iterdir()) == []


def test_dequantize_leaves_nothing_of_a_damaged_pack(made: Path, tmp_path: Path) -> None:
    damaged(made / "glm-5.2-nvfp4.quintal", tmp_path / "pack", (4, 1), 5)
    with packs.Pack(tmp_path / "pack") as pack, pytest.raises(StorageError):
        dequantize.write(pack, tmp_path / "out", "bf16")
    assert [one.name for one in tmp_path.iterdir()] == ["pack"]


def damaged(pack: Path, copy: Path, key: tuple[int, int], at: int) -> None:
    """Copies a pack, with one bit of a record changed."""
    shutil.copytree(pack, copy)
    with packs.Pack(pack) as whole:
        offset, name = whole.base.header.offset(*key) + at, whole.base.records.name
    with (copy / name).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def verified(pack: Path, **given: object) -> verify.Verified:
    asked = {"delta": None, "checkpoint": None, "check": 0, "seed": 0} | given
    with Output().progress() as bar:
        return verify.verify(pack, bar=bar, **asked)  # type: ignore[arg-type]


def test_sound_pack(made: Path) -> None:
    name = "deepseek-v4-flash"
    found = verified(made / f"{name}.quintal", delta=made / f"{name}-quintal", checkpoint=made / name)
    assert found.sound and found.records == 12 and found.missing == 0 and len(found.compared) == 6
    # MXFP4's own four bits are all there.
    assert all((one.weights, one.outputs) == (0, 0) for one in found.compared)
    found = verified(made / f"{name}.quintal", checkpoint=made / name, check=2, seed=1)
    assert found.sound and len(found.compared) == 2
    for one in found.compared:
        assert one.weights is not None and one.outputs is not None
        assert 0.3 < one.weights < 0.9 and 0.3 < one.outputs < 1.5
    assert json.loads(json.dumps(verify.document(found)))["sound"]


def test_damaged_record(made: Path, tmp_path: Path) -> None:
    damaged(made / "glm-5.2-nvfp4.quintal", tmp_path / "pack", (4, 1), 100)
    found = verified(tmp_path / "pack", checkpoint=made / "glm-5.2-nvfp4")
    assert not found.sound and len(found.damaged) == 1 and "layer 4, expert 1" in found.damaged[0]
    assert [one.differences for one in found.compared] == [(), (), (), ("damaged",)]


def test_record_that_the_quantizer_does_not_make(made: Path, tmp_path: Path) -> None:
    """Sound by its checksums, but of another zero mode than it says."""
    source = write(tmp_path / "kimi", "kimi-k2.7-nvfp4", layers=1, experts=1, hidden=64, intermediate=64)
    with Checkpoint.open(source) as opened:
        run.run(opened, tmp_path / "sign", zero_mode="sign", threads=1)
        with packs.Pack(tmp_path / "sign") as pack:
            record = bytes(pack.base.read(1, 0))
            header = run.header(opened, run.BASE_KIND, "alt")
    from serving.experts.storage.writer import Writer

    with Writer.open(tmp_path / "false", header) as writer:
        writer.put(1, 0, record)
        writer.commit()
    found = verified(tmp_path / "false", checkpoint=source)
    assert not found.sound and not found.damaged
    assert found.compared[0].differences[0].startswith("w1 codes: ")


def test_checkpoint_of_another_pack(made: Path) -> None:
    with pytest.raises(StorageError, match="checkpoint"):
        verified(made / "glm-5.2-nvfp4.quintal", checkpoint=made / "deepseek-v4-flash")


def test_options() -> None:
    assert options.layers("3,5-7, 6") == [3, 5, 6, 7] and options.record("3:17") == (3, 17)
    for parse, texts in (
        (options.layers, ("", "a", "7-3", "1,,2", "-1", "1-")),
        (options.record, ("3", "3:", "a:b", "-1:2")),
        (options.count, ("0", "-1", "1.5", "")),
        (options.number, ("-1", "x", "")),
    ):
        for text in texts:
            with pytest.raises(Exception, match=r"expected"):
                parse(text)
