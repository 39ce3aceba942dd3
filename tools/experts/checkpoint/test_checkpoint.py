import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from tools.cli.errors import UserError
from tools.experts.checkpoint import headers, names
from tools.experts.checkpoint.checkpoint import INDEX, MATRICES, Checkpoint, identity
from tools.experts.checkpoint.writer import Writer
from tools.experts.synthetic.models import MODELS
from tools.experts.synthetic.synthetic import write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("made")

    def of(model: str) -> Path:
        path = folder / model
        return path if path.exists() else write(path, model, experts=3, hidden=128, intermediate=64)

    return of


@pytest.fixture
def v4(made: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made("deepseek-v4-flash"), tmp_path / "v4"))


def refused(path: Path, **given: Any) -> str:
    with pytest.raises(UserError) as error:
        Checkpoint.open(path, **given)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("model", MODELS)
def test_matrices_are_what_safetensors_reads(model: str, made: Callable[[str], Path]) -> None:
    kind = MODELS[model]
    with Checkpoint.open(made(model)) as found:
        assert found.layers == (kind.first, kind.first + 1)
        assert (found.scheme, found.experts, found.hidden, found.intermediate) == (kind.scheme, 3, 128, 64)
        assert found.swiglu_limit == (10.0 if "v4" in model else None)
        size = 0
        for name in MATRICES:
            one = found.read(kind.first + 1, 2, name)
            assert (one.rows, one.columns) == ((128, 64) if name == "w2" else (64, 128))
            base = f"{kind.prefix}{kind.first + 1}.{kind.block}.experts.2.{kind.matrices[name]}"
            with safe_open(made(model) / "model-00002-of-00002.safetensors", "numpy") as file:
                assert one.name == f"{base}.{kind.parts['weight']}"
                if kind.scheme == "nvfp4":
                    assert one.scale_2 == file.get_tensor(f"{base}.weight_scale_2")
                if kind.scheme == "fp8_block":
                    assert np.array_equal(one.scales, file.get_tensor(f"{base}.weight_scale_inv"))
                if kind.scheme != "fp8_block":
                    assert np.array_equal(one.codes, file.get_tensor(one.name).view(np.uint8))
            size += one.codes.nbytes + one.scales.nbytes + 4 * (kind.scheme == "nvfp4")
        assert found.expert_bytes == size


def test_drafter_layers_come_after_the_model(tmp_path: Path) -> None:
    write(tmp_path, "deepseek-v4-flash", experts=1, hidden=64, intermediate=64, drafter=True)
    assert Checkpoint.open(tmp_path).layers == (0, 1, 2)
    assert Checkpoint.open(tmp_path, layers=[2]).read(2, 0, "w1").name == "mtp.0.ffn.experts.0.w1.weight"


def test_identity_is_of_contents_not_of_the_place(v4: Path, tmp_path: Path) -> None:
    before = Checkpoint.open(v4).identity
    linked = tmp_path / "linked"
    linked.mkdir()
    for file in v4.iterdir():
        (linked / file.name).symlink_to(file)
    assert Checkpoint.open(linked).identity == before and len(before) == 64
    about = json.loads((v4 / "config.json").read_text())
    (v4 / "config.json").write_text(json.dumps(about | {"added": 1}))
    assert Checkpoint.open(v4).identity != before


def test_identity_is_what_the_page_says(v4: Path) -> None:
    """docs/format-2bit.md, at "checkpoint"."""
    digest = hashlib.sha256()
    for file in ("config.json", INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        raw = (v4 / file).read_bytes()
        if file.endswith(".safetensors"):
            raw = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
        digest.update(file.encode() + b"\0" + str(len(raw)).encode() + b"\0" + raw)
    assert Checkpoint.open(v4).identity == digest.hexdigest() == identity(v4)


def test_without_index(v4: Path) -> None:
    (v4 / INDEX).unlink()
    assert Checkpoint.open(v4).layers == (0, 1)
    shutil.copy(v4 / "model-00001-of-00002.safetensors", v4 / "again.safetensors")
    assert "is in again.safetensors too, and no index decides" in refused(v4)


def test_reads_of_many_threads(v4: Path) -> None:
    wrong: list[tuple[int, str]] = []
    with Checkpoint.open(v4) as found:
        expected = {(e, m): found.read(1, e, m).codes for e in range(3) for m in MATRICES}

        def read() -> None:
            for _ in range(20):
                wrong.extend(key for key in expected if not np.array_equal(found.read(1, *key).codes, expected[key]))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_folder_that_is_none(tmp_path: Path) -> None:
    assert refused(tmp_path).endswith("no config.json; expected the folder of a checkpoint")
    (tmp_path / "config.json").write_text("{")
    assert "no JSON" in refused(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "no quantized routed experts (expected tensors such as" in refused(tmp_path)


def test_damaged_files(v4: Path) -> None:
    shard = v4 / "model-00002-of-00002.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    assert f"{shard}: truncated: {len(whole) - 1} bytes, its header says {len(whole)}" in refused(v4)
    shard.write_bytes(whole[:100])
    assert "truncated: its header has" in refused(v4)
    shard.write_bytes(b"\xff" * 16)
    assert "no safetensors file" in refused(v4)
    shard.write_bytes(whole[:8] + whole[8:].replace(b'"shape":[64,64]', b'"shape":[64,65]', 1))
    assert "4096 bytes for I8 [64, 65]" in refused(v4)
    shard.unlink()
    assert "not there; the checkpoint is incomplete" in refused(v4)


def test_file_that_becomes_shorter_while_it_is_read(v4: Path) -> None:
    found = Checkpoint.open(v4)
    found.read(1, 0, "w1")
    shard = v4 / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(UserError, match=r"ends at byte \d+, while it was read"):
        found.read(1, 2, "w2")


def rewritten(path: Path, change: Callable[[dict[str, tuple[str, tuple[int, ...]]]], None]) -> None:
    """Makes the second file anew, all zero, with other tensors."""
    shard = path / "model-00002-of-00002.safetensors"
    tensors = {name: (one.dtype, one.shape) for name, one in headers.read(shard)[1].items()}
    change(tensors)
    with Writer(shard, tensors) as writer:
        for name, (dtype, shape) in tensors.items():
            writer.put(name, np.zeros(int(np.prod(shape)) * headers.ITEM_BYTES[dtype], dtype=np.uint8))
    index = json.loads((path / INDEX).read_text())
    kept = {name: file for name, file in index["weight_map"].items() if file != shard.name}
    (path / INDEX).write_text(json.dumps({"weight_map": kept | dict.fromkeys(tensors, shard.name)}))


W1 = "layers.1.ffn.experts.2.w1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(f"{W1}.scale"), "none of mxfp4, fp8_block, nvfp4"),
        (lambda t: t.pop(f"{W1}.weight"), "layer 1, expert 2, w1: scale without weight"),
        (lambda t: [t.pop(f"{W1}.{part}") for part in ("weight", "scale")], "no quantized w1 of layer 1, expert 2"),
        (
            lambda t: t.update({f"{W1}.scale": ("F8_E8M0", (64, 5))}),
            "its scales are [64, 5]; expected [64, 4] of mxfp4",
        ),
        (lambda t: t.update({f"{W1}.weight": ("I8", (64, 128))}), "expected [64, 8] of mxfp4"),
        (lambda t: t.update({f"{W1}.weight": ("I8", (24, 64))}), "rows must be a multiple of 16"),
        (lambda t: t.update({f"{W1}.weight": ("I32", (64, 16))}), "none of mxfp4"),
        (lambda t: t.update({f"{W1}.weight": ("BF16", (64, 64))}), "none of mxfp4"),
        (lambda t: t.update({W1.replace("2", "5") + ".weight": ("BF16", (64, 64))}), "layer 1 has 6 experts"),
        (
            lambda t: t.update({f"{W1}.weight": ("F8_E4M3", (64, 128)), f"{W1}.scale": ("F32", (1, 1))}),
            "64 x 128 fp8_block, but 64 x 128 mxfp4 in layer 0; take them one after the other, with --layers",
        ),
    ],
)
def test_tensors_that_do_not_go_together(v4: Path, change: Callable[[Any], None], message: str) -> None:
    rewritten(v4, change)
    assert message in refused(v4)
    if "without weight" not in message:
        assert Checkpoint.open(v4, layers=[0]).layers == (0,)


def test_layer_without_quantization_is_left_alone(v4: Path) -> None:
    def plain(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        for name in [name for name in tensors if ".experts." in name]:
            if name.endswith(".scale"):
                del tensors[name]
            else:
                tensors[name] = ("BF16", (64, 64))

    rewritten(v4, plain)
    found = Checkpoint.open(v4)
    assert (found.layers, found.plain_layers) == ((0,), (1,))
    assert "no quantized routed experts in layer 1; layers with routed experts: 0, 1" in refused(v4, layers=[1])
    with pytest.raises(UserError, match="no quantized w1 of layer 1"):
        found.read(1, 0, "w1")


def test_configuration_of_another_model(v4: Path) -> None:
    about = json.loads((v4 / "config.json").read_text())
    (v4 / "config.json").write_text(json.dumps(about | {"n_routed_experts": 4}))
    assert "config.json says n_routed_experts 4, its tensors 3" in refused(v4)


def test_index_that_lies(v4: Path) -> None:
    index = json.loads((v4 / INDEX).read_text())
    moved = dict(index["weight_map"]) | {"not.there": "model-00001-of-00002.safetensors"}
    (v4 / INDEX).write_text(json.dumps({"weight_map": moved}))
    assert "has no not.there, which" in refused(v4)
    (v4 / INDEX).write_text("[]")
    assert "expected an object" in refused(v4)


def test_names() -> None:
    assert names.parse("model.layers.78.mlp.experts.0.down_proj.weight_scale_2") == names.Place(
        False, 78, 0, "w2", "scale_2"
    )
    assert names.parse("mtp.1.ffn.experts.3.w3.scale") == names.Place(True, 1, 3, "w3", "scale")


@pytest.mark.parametrize(
    "name",
    [
        "layers.3.ffn.shared_experts.w1.weight",
        "layers.0.ffn.gate.weight",
        "layers.0.ffn.experts.0.w4.weight",
        "model.layers.3.mlp.experts.0.up_proj.input_scale",
        "vision.experts.0.w1.weight",
    ],
)
def test_name_of_something_else(name: str) -> None:
    assert names.parse(name) is None


def test_writer_leaves_whole_files_only(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_text("old")
    with pytest.raises(ValueError, match="never put: b"), Writer(path, {"b": ("U8", (3,))}):
        pass
    with pytest.raises(ValueError, match="2 bytes; stated 3"), Writer(path, {"b": ("U8", (3,))}) as writer:
        writer.put("b", np.zeros(2, dtype=np.uint8))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.safetensors", "old")]
    with Writer(path, {"b": ("U8", (3,)), "empty": ("F32", (0, 4)), "one": ("F32", ())}) as writer:
        writer.put("b", np.arange(3, dtype=np.uint8))
        writer.put("empty", np.zeros((0, 4), dtype=np.float32))
        writer.put("one", np.array(0.5, dtype=np.float32))
    with safe_open(path, "numpy") as file:
        assert file.get_tensor("b").tolist() == [0, 1, 2] and file.get_tensor("one") == 0.5
        assert file.get_tensor("empty").shape == (0, 4)
