"""The bench as a whole, on little memory; and ggml's blocks against their definition."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from kernels.cpu_experts import ggml_peer
from kernels.cpu_experts.op import isas


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "kernels.cpu_experts.bench", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_small(tmp_path: Path) -> None:
    out, text = tmp_path / "bench.json", tmp_path / "bench.md"
    sizes = ["--experts", "4", "--together", "2", "--hidden", "1024", "--intermediate", "512", "--repeats", "1"]
    done = bench(*sizes, "--cores", "1", "--no-torch", "--json", str(out), "--markdown", str(text))
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert report["facts"]["bytes"] == 4 * 3 * 1024 * 512 * 17 // 32
    vector = [isa for isa in isas() if isa != "scalar"]
    assert len(report["ours"]) == 2 * (len(vector) + 1) * 4
    assert all(row["GB/s"] > 0 and row["roof"] > 0 for row in report["ours"])
    assert report["ours_off"]["int16"] < 4e-3 < report["ours_off"]["int8"] < 3e-2
    assert text.read_text().count("\n") == len(report["ours"]) + 2


def test_misuse() -> None:
    done = bench("--experts", "2", "--together", "3")
    assert done.returncode == 2
    assert "--experts 2: expected at least --together 3" in done.stderr


def test_ggml_blocks() -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, 256, (3, 32), dtype=np.uint8)
    scales = random.integers(0, 256, (3, 2), dtype=np.uint8)
    found = ggml_peer.blocks(codes, scales)
    assert found.shape == (3, 2, 17)
    for row in range(3):
        for k in range(64):
            block, inside = k // 32, k % 32
            packed = found[row, block, 1 + inside % 16]
            assert packed >> 4 * (inside // 16) & 15 == codes[row, k // 2] >> 4 * (k % 2) & 15
            assert found[row, block, 0] == scales[row, block]
