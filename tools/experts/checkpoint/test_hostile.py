"""Checkpoints that lie: every one is refused in one line that names the file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import INDEX, Checkpoint
from tools.experts.quantize.made_up import checkpoint

SHARD = "model-00002-of-00002.safetensors"
W1, W3 = "layers.1.ffn.experts.0.w1", "layers.1.ffn.experts.0.w3"

Header = dict[str, Any]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "made")


def refused(path: Path) -> str:
    with pytest.raises(UserError) as error:
        Checkpoint.open(path)
    text = str(error.value)
    assert text.isprintable()
    return text


def headed(path: Path, change: Callable[[Header], object], more: bytes = b"") -> None:
    """Changes the second file's header, which may become other bytes, and appends to its data."""
    raw = (path / SHARD).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    changed = change(header)
    text = changed if isinstance(changed, bytes) else json.dumps(header).encode()
    (path / SHARD).write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :] + more)


def added(path: Path, name: str, like: str = f"{W1}.weight") -> None:
    """Gives the second file one more tensor, and the index its name."""
    size = {f"{W1}.weight": 4096, f"{W1}.scale": 256}[like]

    def change(header: Header) -> None:
        end = max(one["data_offsets"][1] for key, one in header.items() if key != "__metadata__")
        header[name] = {**header[like], "data_offsets": [end, end + size]}

    headed(path, change, bytes(size))
    index = json.loads((path / INDEX).read_text())
    index["weight_map"][name] = SHARD
    (path / INDEX).write_text(json.dumps(index))


def stated(path: Path, **facts: object) -> None:
    about = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(about | facts))


def test_these_changes_alone_are_no_fault(made: Path) -> None:
    before = Checkpoint.open(made).layers
    headed(made, lambda _: None)
    added(made, "layers.1.attn.wq.weight")
    stated(made, quantization_config=None, swiglu_limit=7)
    found = Checkpoint.open(made)
    assert found.layers == before and found.swiglu_limit == 7


def shifted(header: Header, by: int) -> None:
    for name, one in header.items():
        if name != "__metadata__":
            one["data_offsets"] = [at + by for at in one["data_offsets"]]


def twice(header: Header) -> bytes:
    one = json.dumps(header[f"{W3}.weight"])
    return f'{json.dumps(header)[:-1]}, "{W1}.weight": {one}}}'.encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda h: h[f"{W1}.weight"].update(data_offsets=h[f"{W3}.weight"]["data_offsets"]),
            "overlap, or leave bytes between them",
        ),
        (lambda h: shifted(h, 8), "overlap, or leave bytes between them"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=[1 << 64, (1 << 64) + 4096]), "overlap, or leave bytes"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=[0.0, 4096.0]), "data_offsets [0.0, 4096.0]"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=["0", "4096"]), "data_offsets ['0', '4096']"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=[0, 4096, 4096]), "data_offsets [0, 4096, 4096]"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=[4096, 0]), "data_offsets [4096, 0]"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=[-4096, 0]), "data_offsets [-4096, 0]"),
        (lambda h: h[f"{W1}.weight"].update(data_offsets=[0, float("inf")]), "data_offsets [0, inf]"),
        (lambda h: h[f"{W1}.weight"].update(shape=[64, 64, True]), "shape [64, 64, True]"),
        (lambda h: h[f"{W1}.weight"].update(shape=[-64, -64]), "shape [-64, -64]"),
        (lambda h: h[f"{W1}.weight"].update(shape=4096), "shape 4096"),
        (lambda h: h[f"{W1}.weight"].update(dtype="I8\nx"), r"dtype 'I8\nx'"),
        (lambda h: h[f"{W1}.weight"].update(dtype=8), "dtype 8"),
        (lambda h: h[f"{W1}.weight"].pop("dtype"), "dtype None"),
        (lambda h: h.update({f"{W1}.weight": None}), "expected dtype, shape and data_offsets"),
        (lambda h: h.update({"\x1b[2J": h[f"{W1}.weight"]}), r"'\x1b[2J'"),
        (lambda _: b"[" * 100_000, "too deep"),
        (lambda _: b"[]", "expected an object"),
        (lambda _: '{"a": 1}'.encode("utf-16"), "utf-8"),
        (twice, f"{W1}.weight is in it twice"),
    ],
)
def test_header_that_lies(made: Path, change: Callable[[Header], object], message: str) -> None:
    headed(made, change)
    assert f"{made / SHARD}: " in (text := refused(made)) and message in text


def test_file_that_goes_on_after_its_tensors(made: Path) -> None:
    size = (made / SHARD).stat().st_size
    with (made / SHARD).open("ab") as file:
        file.write(b"more")
    assert f"{made / SHARD}: {size + 4} bytes, its header says {size}" in refused(made)


@pytest.mark.parametrize("file", ["", "..", ".", "a/b", "/etc/passwd", "a\0b", "a\ud800", "a\nb", 5, None])
def test_index_with_a_file_that_is_none(made: Path, file: object) -> None:
    (made / INDEX).write_text(json.dumps({"weight_map": {"a": file}}))
    assert f"{made / INDEX}: names {file!r}; expected a file of its folder" in refused(made)


def test_index_with_a_name_that_no_terminal_should_see(made: Path) -> None:
    (made / INDEX).write_text(json.dumps({"weight_map": {"a\x1b[2J": SHARD}}))
    assert r"has no 'a\x1b[2J'" in refused(made)


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("model.layers.1.mlp.experts.0.gate_proj.weight", f"{W1}.weight"),
        (f"{W1}.weight_scale_inv", f"{W1}.scale"),
        ("mtp.0.ffn.experts.0.w1.weight", f"{W1}.weight"),
    ],
)
def test_two_tensors_of_one_place(made: Path, name: str, like: str) -> None:
    """Else a matrix would be made of two models' parts. A drafter's layer may be taken for one of the model's."""
    stated(made, num_hidden_layers=1)
    added(made, name, like)
    part = "scale" if "scale" in name else "weight"
    assert f"{made}: two tensors for the {part} of layer 1, expert 0, w1" in (text := refused(made)) and name in text


@pytest.mark.parametrize("number", ["01", "1" + "0" * 5000, "\u0661"])
def test_number_that_no_checkpoint_writes(made: Path, number: str) -> None:
    """Such a tensor is none of an expert's: what there is must not be read in its place."""
    added(made, f"layers.{number}.ffn.experts.0.w1.weight")
    assert Checkpoint.open(made).name(1, 0, "w1") == f"{W1}.weight"


@pytest.mark.parametrize("count", [True, -5, 0, "3", None])
def test_drafter_after_no_number_of_layers(made: Path, count: object) -> None:
    stated(made, num_hidden_layers=count)
    added(made, "mtp.0.ffn.experts.0.w1.weight")
    assert "num_hidden_layers" in refused(made)


@pytest.mark.parametrize("limit", ["10", [1], True, -1.0, float("nan"), float("inf")])
def test_clamp_that_is_none(made: Path, limit: object) -> None:
    stated(made, swiglu_limit=limit)
    assert f"swiglu_limit {limit!r}; expected a positive number" in refused(made)


def test_clamp_of_zero_clamps_nothing(made: Path) -> None:
    stated(made, swiglu_limit=0.0)
    assert Checkpoint.open(made).swiglu_limit is None


@pytest.mark.parametrize("value", [[1], "fp8", 5])
def test_quantization_config_that_is_none(made: Path, value: object) -> None:
    stated(made, quantization_config=value)
    assert "quantization_config" in refused(made)


def test_model_type_is_a_line_or_nothing(made: Path) -> None:
    for value in (["a"], "a\nb", 5):
        stated(made, model_type=value)
        assert Checkpoint.open(made).model_type == ""


def test_configuration_that_is_too_deep(made: Path) -> None:
    (made / "config.json").write_text("[" * 100_000)
    assert f"{made / 'config.json'}: no JSON (too deep)" in refused(made)


@pytest.mark.parametrize("name", ["config.json", INDEX, SHARD])
def test_file_that_is_no_file(made: Path, name: str) -> None:
    """A pipe would be waited for."""
    (made / name).unlink()
    os.mkfifo(made / name)
    assert f"{made / name}: no regular file" in refused(made)
    (made / name).unlink()
    (made / name).mkdir()
    assert f"{made / name}: no regular file" in refused(made)


def test_disk_that_fails_is_named(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with Checkpoint.open(made) as found:
        monkeypatch.setattr(os, "preadv", fails)
        with pytest.raises(UserError, match=rf"{SHARD}: Input/output error at byte \d+"):
            found.read(1, 0, "w1")
