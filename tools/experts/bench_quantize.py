"""python3 -m tools.experts.bench_quantize: the quantizer against numpy, torch, memory and the disk, in one run.

Rates are of the checkpoint's bytes that go in, medians of the runs. On one core: a matrix in memory. On all: one matrix
for each core at once; beside it a copy by as many threads, of which both sides count. From file to file: a made-up
checkpoint whose pages are dropped from memory first, quantized into a pack; beside it what the same files take to read,
and as many bytes as the pack's to write and make safe, by dd with large blocks: each alone, and both at once.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import planes
from tools.experts import torch_form
from tools.experts.checkpoint.checkpoint import INDEX, Checkpoint
from tools.experts.checkpoint.schemes import Matrix
from tools.experts.checkpoint.writer import Writer
from tools.experts.native import codec
from tools.experts.quantize import expert, numpy_form, run
from tools.experts.synthetic import tensors

SCHEMES = ("mxfp4", "nvfp4", "fp8_block")
ROWS, COLUMNS = 2048, 4096

# What a thread does between two meetings of all, so that meeting costs little; bytes of one copy.
ROUNDS, COPIED = 4, 8 << 20

Bytes = NDArray[np.uint8]


def main() -> int:
    """Runs the bench; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.experts.bench_quantize", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="where files are made, on the disk to be measured (default: TMPDIR)"
    )
    parser.add_argument("--gib", type=float, default=0.5, help="of the made-up checkpoint (default: 0.5)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each figure (default: 5)")
    parser.add_argument("--threads", type=int, default=run.cores(), help="default: all cores")
    parser.add_argument("--no-disk", action="store_true", help="leave out the files")
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    asked = parser.parse_args()
    torch = _torch()
    version = torch.__version__ if torch else "not here"
    print(f"{_cpu()}; {asked.threads} threads; loops {codec.isas()[-1]}; torch {version}")
    found: dict[str, Any] = {"cpu": _cpu(), "threads": asked.threads, "loops": codec.isas()}
    found["one core"] = {scheme: one_core(scheme, asked.repeat, torch) for scheme in SCHEMES}
    found["all cores"] = all_cores(asked.threads, asked.repeat, torch)
    if not asked.no_disk:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            found["disk"] = disk(Path(folder), asked.gib, asked.threads, asked.repeat)
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1))
    return 0


def one_core(scheme: str, repeat: int, torch: Any) -> dict[str, float]:
    """GB/s of each form on one matrix; asserts that all give the same bytes."""
    one = matrix(scheme)
    size = one.codes.nbytes + one.scales.nbytes
    expected, _ = numpy_form.records([numpy_form.quantize(one, "auto")], None)
    rates: dict[str, float] = {}
    base = np.empty_like(expected)
    for isa in codec.isas():
        for kind in (None, "quintal"):
            delta = np.empty(planes.quintal_bytes(ROWS, COLUMNS) if kind else 0, dtype=np.uint8)
            name = isa + (" + quintal" if kind else "")
            rates[name] = rate(lambda: expert.quantize([one], "auto", base, delta, kind, isa), size, repeat * 3)  # noqa: B023
            assert np.array_equal(base, expected)
    rates["numpy"] = rate(
        lambda: numpy_form.records([numpy_form.quantize(one, "auto")], None), size, max(1, repeat // 2)
    )
    if torch is not None:
        torch.set_num_threads(1)
        plane, scales = torch_form.quantize(torch, one)
        assert np.array_equal(np.concatenate([plane.numpy(), scales.numpy()]), expected)
        rates["torch"] = rate(lambda: torch_form.quantize(torch, one), size, repeat)
    best = rates[codec.isas()[-1]]
    peers = ", ".join(
        f"{name} {rates[name]:.3f} ({best / rates[name]:.0f}x)" for name in ("numpy", "torch") if name in rates
    )
    own = ", ".join(f"{name} {value:.2f}" for name, value in rates.items() if name not in ("numpy", "torch"))
    print(f"one core, {scheme}, GB/s: {own}; {peers}")
    return rates


def all_cores(threads: int, repeat: int, torch: Any) -> dict[str, dict[str, float]]:
    """GB/s of all cores together, and of a copy: of what goes in and comes out; of torch with all its threads."""
    found: dict[str, dict[str, float]] = {}
    with ThreadPoolExecutor(threads) as pool:
        for scheme in SCHEMES:
            one = matrix(scheme)
            size, slot = one.codes.nbytes + one.scales.nbytes, planes.base_slot(COLUMNS, ROWS) // 3
            # Copies of its own for each thread: none of them in another's cache.
            ones = [replace(one, codes=one.codes.copy(), scales=one.scales.copy()) for _ in range(threads)]
            slots = [np.zeros(slot, dtype=np.uint8) for _ in ones]
            own = rate(partial(_together, pool, _rounds, ones, slots), ROUNDS * size * threads, repeat)
            blocks = [np.full(COPIED, at, dtype=np.uint8) for at in range(2 * threads)]
            copy = partial(_together, pool, _copy, blocks[::2], blocks[1::2])
            moved = rate(copy, 2 * ROUNDS * COPIED * threads, repeat)
            through = own * (1 + slot / size)
            found[scheme] = {"in": own, "in and out": through, "copy": moved}
            line = f"{threads} threads, {scheme}, GB/s: {own:.1f} in, {through:.1f} in and out; a copy {moved:.1f}"
            if torch is not None:
                torch.set_num_threads(threads)
                found[scheme]["torch"] = rate(partial(torch_form.quantize, torch, one), size, repeat)
                line += f"; torch {found[scheme]['torch']:.3f} in ({own / found[scheme]['torch']:.0f}x)"
            print(line)
    return found


def disk(folder: Path, gib: float, threads: int, repeat: int) -> dict[str, float]:
    """Seconds from file to file, and of dd over the same bytes."""
    source, count = checkpoint(folder / "model", gib)
    own: list[float] = []
    reads: list[float] = []
    writes: list[float] = []
    both: list[float] = []
    written = 0
    with Checkpoint.open(source) as opened:
        read = count * opened.expert_bytes
        for at in range(repeat):
            pack = folder / f"pack-{at}"
            _drop(source)
            begun = time.perf_counter()
            written = _pack(opened, pack, threads)
            own.append(time.perf_counter() - begun)
            for reads_too, writes_too, times in ((True, False, reads), (False, True, writes), (True, True, both)):
                _drop(source)
                begun = time.perf_counter()
                _dds(source if reads_too else None, folder / "dd", written if writes_too else 0)
                times.append(time.perf_counter() - begun)
                (folder / "dd").unlink(missing_ok=True)
            shutil.rmtree(pack)
    seconds, alone, writing, together = (statistics.median(times) for times in (own, reads, writes, both))
    print(f"disk: {read / 1e9:.2f} GB to {written / 1e9:.2f} GB in {seconds:.2f} s, {read / seconds / 1e9:.2f} GB/s in")
    print(f"dd: reads in {alone:.2f} s, writes in {writing:.2f} s, both at once in {together:.2f} s")
    print(f"the quantizer's speed is {together / seconds:.0%} of dd's, both at once")
    return {
        "read bytes": float(read),
        "written bytes": float(written),
        "seconds": seconds,
        "dd read seconds": alone,
        "dd write seconds": writing,
        "dd both seconds": together,
    }


def matrix(scheme: str) -> Matrix:
    """A matrix of made-up weights."""
    arrays = dict(tensors.stored(scheme, tensors.weights(np.random.default_rng(0), ROWS, COLUMNS)))
    codes, scales = (np.ascontiguousarray(arrays[part][1]) for part in ("weight", "scale"))
    second = float(np.asarray(arrays["scale_2"][1], dtype=np.float32)) if "scale_2" in arrays else 1.0
    of_block = scales.astype(np.float32) if scheme == "fp8_block" else scales.view(np.uint8)
    return Matrix(scheme, ROWS, COLUMNS, codes.view(np.uint8), of_block, second, scheme)


def rate(work: Callable[[], object], size: int, repeat: int) -> float:
    """GB/s of the median run."""
    work()
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return size / statistics.median(times) / 1e9


def checkpoint(path: Path, gib: float) -> tuple[Path, int]:
    """An MXFP4 checkpoint of random bytes with the matrices of DeepSeek V4 Flash, a file a layer, and its experts."""
    path.mkdir()
    layers, hidden, intermediate = 4, 4096, 2048
    size = 3 * hidden * intermediate * 17 // 32
    experts = max(1, round(gib * 2**30 / size / layers))
    weight_map: dict[str, str] = {}
    generator = np.random.default_rng(0)
    nibbles = generator.integers(0, 256, hidden * intermediate // 2, dtype=np.uint8)
    scales = generator.integers(115, 125, hidden * intermediate // 32, dtype=np.uint8)
    for layer in range(layers):
        stated: dict[str, tuple[str, tuple[int, ...]]] = {}
        for one in range(experts):
            for name, (rows, columns) in planes.shapes(hidden, intermediate).items():
                stated[f"layers.{layer}.ffn.experts.{one}.{name}.weight"] = ("I8", (rows, columns // 2))
                stated[f"layers.{layer}.ffn.experts.{one}.{name}.scale"] = ("F8_E8M0", (rows, columns // 32))
        file = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
        with Writer(path / file, stated) as writer:
            for name in stated:
                writer.put(name, nibbles if name.endswith("weight") else scales)
        weight_map |= dict.fromkeys(stated, file)
    (path / "config.json").write_text(json.dumps({"model_type": "deepseek_v4", "swiglu_limit": 10.0}))
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return path, layers * experts


def _together(pool: ThreadPoolExecutor, work: Callable[[Any, Any], None], ones: list[Any], others: list[Any]) -> None:
    list(pool.map(work, ones, others))


def _rounds(one: Matrix, slot: Bytes) -> None:
    for _ in range(ROUNDS):
        expert.quantize([one], "auto", slot)


def _copy(source: Bytes, target: Bytes) -> None:
    for _ in range(ROUNDS):
        np.copyto(target, source)


def _pack(opened: Checkpoint, pack: Path, threads: int) -> int:
    run.run(opened, pack, threads=threads)
    return sum(one.stat().st_blocks * 512 for one in pack.iterdir())


def _drop(source: Path) -> None:
    """Makes the next read come from the disk."""
    os.sync()
    for shard in source.glob("*.safetensors"):
        descriptor = os.open(shard, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _dds(source: Path | None, target: Path, size: int) -> None:
    """Has dd read the checkpoint's files and write `size` bytes to a file, at once."""
    commands = [[f"if={shard}", "of=/dev/null"] for shard in sorted(source.glob("*.safetensors"))] if source else []
    writing = None
    if size:
        count = -(-size // (8 << 20))
        writing = subprocess.Popen(
            ["dd", "if=/dev/zero", f"of={target}", "bs=8M", f"count={count}", "conv=fdatasync", "status=none"]
        )
    for one in commands:
        subprocess.run(["dd", *one, "bs=8M", "status=none"], check=True)
    if writing is not None and writing.wait() != 0:
        raise OSError(f"dd could not write {target}")


def _torch() -> Any:
    try:
        import torch
    except (ImportError, OSError):
        return None
    return torch


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown CPU'}, {run.cores()} CPUs"


if __name__ == "__main__":
    sys.exit(main())
