"""Bytes of experts a second that the CPU tier computes from, beside what memory and instructions allow, and peers.

usage: python3 -m kernels.cpu_experts.bench [--experts N] [--ggml LIBRARY] [--json FILE] [--markdown FILE]

All figures are medians of one run, in GB/s of MXFP4 bytes. Experts total several times the last-level cache, and each
is read once before it is read again. The stream is a plain read of the same memory by the same threads, without and
with software prefetch. The roof is the instruction that sums products, on registers alone, as often as a block needs
it: decoding, scaling and adding are not in it. torch has the experts dequantized to bfloat16; its figure, too, is of
the MXFP4 bytes. ggml is given fp32 and quantizes it to 8 bits. What the peers compute is held against fp64.
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from . import made_up, reference, topology
from .layout import SUPERBLOCK, Record, unpack_expert
from .op import CpuExperts, default_cores, isas

TOKENS = (1, 2, 6, 8)
PREFETCH = (0, 2176, 4352)
_BLOCK_BYTES = SUPERBLOCK / 4

Row = dict[str, object]


def cpu_name() -> str:
    """What /proc/cpuinfo calls this CPU."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """The median of so many calls, after one that is not counted."""
    call()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


class Memory:
    """Experts in one arena. All have the same bytes, each its own."""

    def __init__(self, record: Record, count: int) -> None:
        self.record, self.count = record, count
        self.arena = made_up.arena(count * record.size + 2 * SUPERBLOCK)
        first = made_up.fill(made_up.aligned(record.size), 1)
        self.flats = [self.arena[e * record.size : (e + 1) * record.size] for e in range(count)]
        for flat in self.flats:
            flat[:] = first

    @property
    def size(self) -> int:
        """Bytes of all experts."""
        return self.count * self.record.size

    @cached_property
    def exact(self) -> reference.Doubles:
        """What an expert makes of the first token, whatever the count of tokens, in fp64."""
        x = made_up.activations((1, self.record.hidden), 2)
        return reference.exact_expert(self.record, self.flats[0], x, 10.0)

    def difference(self, got: reference.Floats) -> float:
        """The rms of a result's difference to the exact one, over the rms of that, for the first token."""
        return float(np.sqrt(np.mean((got[:1] - self.exact) ** 2) / np.mean(self.exact**2)))

    def tier(self, cores: list[int], slots: int, activations: str, isa: str) -> CpuExperts:
        """A tier that has them all."""
        tier = CpuExperts(
            self.record.hidden,
            self.record.intermediate,
            self.count,
            slots,
            activations=activations,
            isa=isa,
            cores=cores,
        )
        for expert, flat in enumerate(self.flats):
            tier.set_record(expert, flat)
        return tier


def stream(memory: Memory, cores: list[int], repeats: int) -> dict[int, float]:
    """GB/s of reading the experts, by the distance of prefetch."""
    tier = memory.tier(cores, 1, "int16", "auto")
    engine, address = tier._engine, memory.arena.ctypes.data
    found = {}
    for ahead in PREFETCH:
        engine.read_seconds(address, memory.size, ahead)
        seconds = [engine.read_seconds(address, memory.size, ahead) for _ in range(repeats)]
        found[ahead] = memory.size / statistics.median(seconds) * 1e-9
    return found


def roof(memory: Memory, cores: list[int], isa: str, parts: int, tokens: int) -> float:
    """GB/s of MXFP4 bytes that the instruction for sums of products allows, on registers alone."""
    if isa == "scalar":
        return math.inf
    tier = memory.tier(cores, 1, "int16", "auto")
    engine, rows = tier._engine, parts * tokens
    # Of 16 rows by 32 inputs: 8 words of 4 inputs for each token and part, twice with vectors of 8 rows.
    needed = {"avx2": 16 * rows, "avx512": 8 * rows, "amx": 1}[isa]
    rounds = 100_000 if isa == "amx" else 1_000_000
    engine.dots_a_second(isa, rows, rounds // 10)
    rate = statistics.median(engine.dots_a_second(isa, rows, rounds) for _ in range(3))
    return rate / needed * _BLOCK_BYTES * 1e-9


def ours(memory: Memory, tier: CpuExperts, tokens: int, together: int, repeats: int) -> float:
    """GB/s of a tier that computes so many experts at a time, each for all tokens."""
    hidden = memory.record.hidden
    x = made_up.activations((tokens, hidden), 2)
    ids = np.tile(np.arange(together, dtype=np.int32), (tokens, 1))
    weights = np.full(ids.shape, 1 / together, np.float32)
    out = np.empty((tokens, hidden), np.float32)
    starts = range(0, memory.count - together + 1, together)
    jobs = [tier.job(x, ids, weights, out32=out, base=base) for base in starts]

    def go() -> None:
        for job in jobs:
            job.run()

    return len(jobs) * together * memory.record.size / median_seconds(go, repeats) * 1e-9


def torch_experts(memory: Memory, tokens: int, threads: int, repeats: int) -> tuple[float, float]:
    """GB/s of MXFP4 bytes of torch with bfloat16 weights, and the rms of its difference to the exact result."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    record = memory.record
    found = unpack_expert(record, memory.flats[0])

    def matrix(name: str) -> torch.Tensor:
        codes, scales = found[name]
        values = reference.twice_values(codes) * 0.5 * np.repeat(reference.scale_values(scales), 32, axis=1)
        return torch.from_numpy(values.astype(np.float32)).bfloat16()

    first = [matrix(name) for name in ("w1", "w3", "w2")]
    count = max(2, math.ceil(1.5e9 / (2 * sum(w.numel() for w in first))))
    sets = [[w.clone() for w in first] for _ in range(count)]
    words = made_up.activations((tokens, record.hidden), 2)
    x = torch.from_numpy(reference.from_bfloat16(words)).bfloat16()

    def one(w: list[torch.Tensor]) -> torch.Tensor:
        gate = functional.linear(x, w[0]).clamp(max=10)
        up = functional.linear(x, w[1]).clamp(-10, 10)
        return functional.linear(functional.silu(gate) * up, w[2])

    with torch.inference_mode():
        off = memory.difference(one(sets[0]).float().numpy())
        seconds = median_seconds(lambda: [one(w) for w in sets], repeats)
    return count * record.size / seconds * 1e-9, off


def ggml_experts(
    library: Path, memory: Memory, tokens: int, threads: int, repeats: int, repacked: bool
) -> tuple[float, float]:
    """GB/s of ggml, and the rms of its difference to the exact result."""
    from .ggml_peer import GgmlExperts

    count = max(2, min(memory.count, math.ceil(1.3e9 / memory.record.size)))
    flats = [memory.flats[0]] * count
    peer = GgmlExperts(library, memory.record, flats, tokens, threads, 10.0, repacked=repacked)
    words = made_up.activations((tokens, memory.record.hidden), 2)
    peer.set_x(reference.from_bfloat16(words))
    seconds = median_seconds(peer.run, repeats)
    off = memory.difference(peer.out(count - 1))
    peer.close()
    return count * memory.record.size / seconds * 1e-9, off


def table(rows: list[Row]) -> str:
    """Rows as a Markdown table."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(cell(row.get(name, "")) for name in names) + " |" for row in rows])


def main() -> None:
    """Measures, prints tables, and writes them."""
    parser = argparse.ArgumentParser(prog="kernels.cpu_experts.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--experts", type=int, default=72, help="experts in memory (default: 72)")
    parser.add_argument("--hidden", type=int, default=5120)
    parser.add_argument("--intermediate", type=int, default=2304)
    parser.add_argument("--together", type=int, default=8, help="experts of a step (default: 8)")
    parser.add_argument("--cores", type=int, help="so many threads (default: as CpuExperts has them)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--ggml", type=Path, help="a shared library of ggml with its CPU backend")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    if given.experts < given.together:
        parser.error(f"--experts {given.experts}: expected at least --together {given.together}")
    cores = default_cores() if given.cores is None else topology.pick(given.cores)
    memory = Memory(Record(given.hidden, given.intermediate), given.experts)
    usable = [isa for isa in isas() if isa != "scalar"]

    speeds = stream(memory, cores, given.repeats)
    plain, best = speeds[0], max(speeds.values())
    facts = {
        "cpu": cpu_name(), "cores": len(cores), "allowed": len(os.sched_getaffinity(0)), "isas": isas(),
        "experts": given.experts, "bytes": memory.size, "hidden": given.hidden, "intermediate": given.intermediate,
    }  # fmt: skip
    print(json.dumps(facts))
    print("stream, GB/s by bytes of prefetch:", json.dumps({k: round(v, 1) for k, v in speeds.items()}), flush=True)

    rows: list[Row] = []
    for activations, parts in (("int16", 2), ("int8", 1)):
        for isa in [*usable, "auto"]:
            tier = memory.tier(cores, given.together, activations, isa)
            for tokens in TOKENS:
                used = tier.isa(tokens)
                speed = ours(memory, tier, tokens, given.together, given.repeats)
                one = ours(memory, tier, tokens, 1, given.repeats)
                most = roof(memory, cores, used, parts, tokens)
                rows.append({
                    "activations": activations, "isa": isa if isa == used else f"{isa} ({used})", "M": tokens,
                    "GB/s": speed, "one at a time": one, "us an expert": memory.record.size / speed * 1e-3,
                    "roof": most, "of plain stream": speed / plain, "of the lower of stream and roof":
                    speed / min(plain, most),
                })  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
    again = stream(memory, cores, given.repeats)
    print("stream again:", json.dumps({k: round(v, 1) for k, v in again.items()}), flush=True)

    peers: list[Row] = []
    for tokens in TOKENS:
        if given.ggml:
            for repacked in (False, True):
                name = "ggml, repacked" if repacked else "ggml"
                speed, off = ggml_experts(given.ggml, memory, tokens, len(cores), given.repeats, repacked)
                peers.append({"peer": name, "M": tokens, "GB/s": speed, "off by, rms": off})
                print(json.dumps(peers[-1]), flush=True)
        if not given.no_torch:
            speed, off = torch_experts(memory, tokens, len(cores), given.repeats)
            peers.append({"peer": "torch bfloat16", "M": tokens, "GB/s": speed, "off by, rms": off})
            print(json.dumps(peers[-1]), flush=True)
    ours_off = {}
    x = made_up.activations((1, given.hidden), 2)
    for activations in ("int16", "int8"):
        tier = memory.tier(cores, 1, activations, "auto")
        got = tier(x, np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))
        ours_off[activations] = memory.difference(got)
    print("ours off by, rms:", json.dumps(ours_off))
    report = {
        "facts": facts, "stream": speeds, "stream_again": again, "best_stream": best, "ours": rows, "peers": peers,
        "ours_off": ours_off,
    }  # fmt: skip
    text = "\n\n".join([table(rows), table(peers)] if peers else [table(rows)])
    print(text)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    if given.markdown:
        given.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
