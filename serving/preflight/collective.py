"""Whether GPUs copy to each other and sum together, how fast, and where it stops.

  python3 collective.py --tp N [--groups M]

Needs torch and nothing else: a preflight hands its text to the Python of an image. Every group of N GPUs sums with
NCCL, a process a GPU, in the sizes of a served model; before that, every GPU copies to every other. The last line on
stdout is one JSON document, which says what was seen wherever it stopped. Nothing is left running.

Exit status 0: the document says what was found, a hang included; 2: wrong usage.
"""

import argparse
import functools
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SCHEMA = "moet.all-reduce.v1"
# Rows of 5,120 bf16, a token's, are 10 KiB: a decode step has one to fifty; 64 MiB shows the links' rate.
SIZES = (5 << 10, 10 << 10, 32 << 10, 128 << 10, 512 << 10, 64 << 20)
_LARGE = 1 << 20
_COPIED = 4 << 20
_IN_A_GRAPH = 20
_REPEATS = 15
_ROUNDS = 5
# What others may still say after one has failed.
_GRACE_S = 5.0

Say = Callable[[str, Any], None]
Job = Callable[[Say], None]


class Process:
    """One process of a stage: where it was last, what it found, and why it failed."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.at = ""
        self.found: dict[str, Any] = {}
        self.error = ""
        self.running = True
        self.process = context.Process(target=_run, args=(job, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def hear(self) -> None:
        """Takes in one message, or that the process has ended."""
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            self.running = False
            self.process.join(_GRACE_S)
            if self.process.exitcode and not self.error:
                self.error = f"ended with status {self.process.exitcode}"
            return
        if kind == "at":
            self.at = value
        elif kind == "failed":
            self.error = value
        else:
            self.found[kind] = value


def _run(job: Job, pipe: multiprocessing.connection.Connection) -> None:
    """What a process does; it ends at once, as libraries that hang hang again when they are closed."""
    # stdout has the document alone.
    os.dup2(2, 1)
    status = 0
    try:
        job(lambda kind, value: pipe.send((kind, value)))
    except BaseException as error:
        pipe.send(("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"))
        status = 1
    pipe.close()
    os._exit(status)


def stage(jobs: Sequence[Job], first_s: float, silent_s: float) -> tuple[list[Process], dict[str, Any]]:
    """Runs jobs beside each other, and kills them where all are silent for too long.

    Args:
        jobs: one a process.
        first_s: seconds from word to word until each said where it is: loading torch from a slow disk takes long.
        silent_s: seconds from word to word.

    Returns the processes, and how they ended, as the document has it.
    """
    processes = [Process(job) for job in jobs]
    hung = False
    while waiting := {one.pipe: one for one in processes if one.running}:
        failed, heard = any(one.error for one in processes), all(one.at for one in processes)
        ready = multiprocessing.connection.wait(
            list(waiting), _GRACE_S if failed else silent_s if heard else first_s
        )
        for pipe in ready:
            waiting[pipe].hear()  # type: ignore[index]
        if not ready:
            hung = not failed
            break
    for one in processes:
        one.process.kill()
    for one in processes:
        one.process.join(_GRACE_S)
    errors = [f"process {number}: {one.error}" for number, one in enumerate(processes) if one.error]
    stopped = [one for one in processes if one.error or one.running]
    return processes, {
        "state": "failed" if errors else "hung" if hung else "done",
        "where": list(dict.fromkeys(one.at or "its start" for one in stopped)),
        "errors": errors,
    }


def copies(devices: int, say: Say) -> None:
    """Copies from every GPU to every other, compared byte by byte; says which may, and which come out wrong."""
    import torch

    if torch.cuda.device_count() < devices:
        raise RuntimeError(f"torch sees {torch.cuda.device_count()} GPUs, expected {devices}")
    pairs = [(one, other) for one in range(devices) for other in range(devices) if one != other]
    say("closed", [pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)])
    wrong = []
    for number, (one, other) in enumerate(pairs):
        say("at", f"the copy from GPU {one} to GPU {other}")
        data = torch.randint(0, 256, (_COPIED,), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))
        source = data.to(f"cuda:{one}")
        target = torch.zeros_like(data, device=f"cuda:{other}")
        torch.cuda.synchronize(one)
        torch.cuda.synchronize(other)
        target.copy_(source)
        torch.cuda.synchronize(one)
        torch.cuda.synchronize(other)
        if not torch.equal(target.cpu(), data):
            wrong.append((one, other))
    say("wrong", wrong)


def rank(number: int, count: int, device: int, backend: str, store: str, late_s: float, say: Say) -> None:
    """One process of an all-reduce: says for each size how long a sum takes, and whether it is right.

    Args:
        number: the rank.
        count: ranks.
        device: the GPU's index; without meaning for gloo.
        backend: nccl, or gloo for CPUs.
        store: a file that the ranks meet at.
        late_s: seconds to stay away for before the sums.
        say: takes what was found, and where it is.
    """
    import torch
    import torch.distributed as dist

    on = torch.device("cpu" if backend == "gloo" else f"cuda:{device}")
    if on.type == "cuda":
        torch.cuda.set_device(on)
        say("nccl", ".".join(str(part) for part in torch.cuda.nccl.version()))
    say("at", "meeting the others")
    dist.init_process_group(backend, init_method=f"file://{store}", rank=number, world_size=count)
    time.sleep(late_s)
    sums = []
    for size in SIZES:
        say("at", f"sums of {size:,} bytes")
        right = _right(torch, dist, number, count, size, on)
        say("at", f"timing sums of {size:,} bytes")
        times = _times(torch, dist, torch.zeros(size // 2, dtype=torch.bfloat16, device=on))
        sums.append({"bytes": size, "microseconds": statistics.median(times), "right": right})
    say("sums", sums)


def _right(torch: Any, dist: Any, number: int, count: int, size: int, on: Any) -> bool:
    """Whether sums come out, of other terms each time, so that what was left from the last is seen."""
    right = True
    for turn in range(_ROUNDS):
        terms = (term(torch, size, one, turn, on) for one in range(count))
        expected = functools.reduce(torch.add, terms)
        mine = term(torch, size, number, turn, on)
        dist.all_reduce(mine)
        right = right and torch.equal(mine, expected)
    return right


def term(torch: Any, size: int, number: int, turn: int, on: Any) -> Any:
    """What a rank adds: integers up to 16, which bf16 sums exactly among 16 ranks, in any order.

    Their period is a prime: a piece that lands at another power of two is seen.
    """
    index = torch.arange(size // 2, dtype=torch.int32, device=on)
    return ((index + 3 * number + turn) % 17).to(torch.bfloat16)


def _times(torch: Any, dist: Any, data: Any) -> list[float]:
    """Microseconds of one sum, measured _REPEATS times: as decode steps run them, in a CUDA graph; large ones alone."""
    if data.device.type == "cpu":
        return [_clocked(functools.partial(dist.all_reduce, data)) for _ in range(_REPEATS)]
    inner = 1 if data.nbytes >= _LARGE else _IN_A_GRAPH
    dist.all_reduce(data)
    torch.cuda.synchronize()
    run = functools.partial(dist.all_reduce, data)
    if inner > 1:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(inner):
                dist.all_reduce(data)
        run = graph.replay
    for _ in range(3):
        run()
    times = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / inner)
    return times


def _clocked(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e6


def group(first: int, options: argparse.Namespace) -> dict[str, Any]:
    """The all-reduce of the GPUs from `first` on, of its slowest process, and by which ways NCCL says that it sends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # NCCL's own log names its ways; its default place is stdout.
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": f"{folder}/nccl.%p"}
        jobs = [
            functools.partial(
                rank, number, options.tp, first + number, options.backend, f"{folder}/store",
                options.late_s if number == options.late else 0.0,
            )
            for number in range(options.tp)
        ]
        processes, ended = stage(jobs, options.first_s, options.silent_s)
        text = "".join(path.read_text(errors="replace") for path in sorted(Path(folder).glob("nccl.*")))
    found = [one.found for one in processes]
    sums = [merged(each) for each in zip(*(one.get("sums", []) for one in found), strict=False)]
    return {
        "devices": list(range(first, first + options.tp)),
        **ended,
        "sums": sums,
        "nccl": found[0].get("nccl", ""),
        "ways": ways(text),
        "warnings": warnings(text),
    }


def merged(sums: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One size's sum, from what each process says of it."""
    return {
        "bytes": sums[0]["bytes"],
        "microseconds": max(one["microseconds"] for one in sums),
        "right": all(one["right"] for one in sums),
    }


def ways(log: str) -> dict[str, int]:
    """Channels in NCCL's log by how they send: P2P/CUMEM, P2P/IPC, SHM/direct, NET/Socket."""
    counted: dict[str, int] = {}
    for way in re.findall(r" via ([A-Za-z0-9]+(?:/[A-Za-z]+)?)", log):
        counted[way] = counted.get(way, 0) + 1
    return counted


def warnings(log: str) -> list[str]:
    """The last few different warnings in NCCL's log."""
    return list(dict.fromkeys(re.findall(r"NCCL WARN (.*)", log)))[-3:]


def main(words: Sequence[str]) -> int:
    """Runs the program; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--tp", type=int, required=True, metavar="N", help="GPUs that sum together")
    parser.add_argument("--groups", type=int, default=1, metavar="M", help="how many such groups, one after another")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: CPUs instead of GPUs")
    parser.add_argument("--silent-s", type=float, default=30, help="seconds from word to word: longer is a hang")
    parser.add_argument("--first-s", type=float, default=180, help="the same, until all have loaded torch")
    parser.add_argument("--late", type=int, default=-1, metavar="RANK", help="this rank comes late, to see a hang")
    parser.add_argument("--late-s", type=float, default=3600, help="by so many seconds")
    options = parser.parse_args(words)
    there = importlib.util.find_spec("torch") is not None
    document: dict[str, Any] = {"schema": SCHEMA, "torch": there, "copies": None, "groups": []}
    if there and options.backend == "nccl":
        jobs = [functools.partial(copies, options.tp * options.groups)]
        (process,), ended = stage(jobs, options.first_s, options.silent_s)
        found = {name: process.found.get(name, []) for name in ("closed", "wrong")}
        document["copies"] = {**ended, **found}
    for number in range(options.groups if there else 0):
        document["groups"].append(group(number * options.tp, options))
    print(json.dumps(document), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
