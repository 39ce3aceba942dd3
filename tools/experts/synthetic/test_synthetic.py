import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common import formats, planes
from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.quantize import codebooks
from tools.experts.synthetic import __main__ as program
from tools.experts.synthetic import tensors
from tools.experts.synthetic.models import MODELS
from tools.experts.synthetic.synthetic import write

SMALL: dict[str, Any] = {"layers": 1, "experts": 1, "hidden": 128, "intermediate": 64}


@pytest.mark.parametrize("model", MODELS)
def test_same_seed_same_bytes(model: str, tmp_path: Path) -> None:
    def made(name: str, seed: int) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in write(tmp_path / name, model, seed=seed, **SMALL).iterdir()}

    assert made("a", 1) == made("b", 1) != made("c", 2)


@pytest.mark.parametrize("scheme", ["mxfp4", "nvfp4", "fp8_block"])
def test_stored_weights_are_near(scheme: str) -> None:
    values = tensors.weights(np.random.default_rng(0), 192, 320)
    arrays = {part: array for part, (_, array) in tensors.stored(scheme, values).items()}
    codes, scales = arrays["weight"], arrays["scale"]
    if scheme == "mxfp4":
        found = planes.decode_nibbles(planes.split_nibbles(codes.astype(np.uint8)), scales.astype(np.uint8))
    elif scheme == "nvfp4":
        of_block = formats.decode_e4m3(scales.astype(np.uint8)) * float(arrays["scale_2"])
        found = formats.decode_e2m1(codes.astype(np.uint8)) * np.repeat(of_block, 16, axis=1)
    else:
        of_weight = np.repeat(np.repeat(scales.astype(float), 128, axis=0), 128, axis=1)[:192, :320]
        found = formats.decode_e4m3(codes.astype(np.uint8)) * of_weight
    error = np.sqrt(np.mean((found - values) ** 2) / np.mean(values**2))
    assert error < (0.04 if scheme == "fp8_block" else 0.15)


def test_zeros_of_kimi_are_all_positive(tmp_path: Path) -> None:
    with Checkpoint.open(write(tmp_path, "kimi-k2.7-nvfp4", **SMALL)) as found:
        nibbles = planes.split_nibbles(found.read(1, 0, "w1").codes)
    assert not (nibbles == 8).any() and 0.05 < np.mean(nibbles == 0) < 0.3


def test_histograms_are_skewed_as_the_models_are(tmp_path: Path) -> None:
    """Free choice of four levels would lean to one side; the symmetric set does not."""
    with Checkpoint.open(write(tmp_path, "deepseek-v4-flash")) as found:
        for name in ("w1", "w3", "w2"):
            nibbles = planes.split_nibbles(found.read(0, 0, name).codes)
            searched = codebooks.search(np.bincount(nibbles.reshape(-1), minlength=16))
            assert searched.symmetric.levels == codebooks.CANONICAL
            assert abs(searched.free.bias) > 5 * abs(searched.canonical.bias)


def test_what_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model of which"):
        write(tmp_path / "a", "gpt")
    with pytest.raises(UserError, match="multiples of 64"):
        write(tmp_path / "a", "glm-5.2-nvfp4", hidden=100)
    assert not (tmp_path / "a").exists()


def test_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.experts.synthetic", "glm-5.2-nvfp4", str(tmp_path / "a"), "--hidden=64"]
    done = subprocess.run([*command, "--intermediate=64"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert Checkpoint.open(tmp_path / "a").hidden == 64
    done = subprocess.run([*command, "--intermediate=65"], capture_output=True, text=True)
    assert done.returncode == 1 and "multiples of 64" in done.stderr


def test_program_says_in_one_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for given, message in ((["a", "--seed=-1"], "seed -1"), (["file/a"], f"{tmp_path / 'file'}"), (["file"], "exists")):
        assert program.main(["glm-5.2-nvfp4", str(tmp_path / given[0]), "--hidden=64", *given[1:]]) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and message in err
