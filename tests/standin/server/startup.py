"""A start as vLLM 0.33.0 logs it, phase after phase, with the faults that the stand-in is told to have.

The files that the lines name are those of the wheel that write them.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.standin.server import behaviour, log
from tests.standin.server.arguments import Arguments
from tests.standin.server.behaviour import Behaviour

# Where Moet's images keep what is compiled and tuned, and the mark that a start leaves there.
_CACHE = os.environ.get("HOME", "/var/lib/moet")
MARK = "standin-tuned"
_SHARDS = 4
_TICK = 0.05
_API, _ENGINE, _WORKER = "APIServer", "EngineCore", "Worker_TP0"
# What each phase begins with: process, file and line, message.
_LINES = {
    "program": [(_API, "startup.py:39", "vLLM server version 0.33.0, serving model {model}")],
    "engine": [(_ENGINE, "core.py:139", "Initializing a V1 LLM engine (v0.33.0) with config: model='{model}'")],
    "weights": [(_WORKER, "model_runner.py:399", "Loading model from scratch...")],
    "memory": [
        (_WORKER, "default_loader.py:507", "Loading weights took 0.12 seconds"),
        (_WORKER, "model_runner.py:428", "Model loading took 83.1 GiB memory and 0.200000 seconds"),
    ],
    "cache": [
        (_WORKER, "gpu_worker.py:772", "Available KV cache memory: 3.14 GiB"),
        (
            _ENGINE,
            "kv_cache_utils.py:1147",
            "GPU KV cache size: 1,490,870 tokens, Maximum concurrency for {length:,} tokens per request: 2.84x",
        ),
    ],
    "kernels": [(_WORKER, "kernel_warmup.py:179", "JIT kernel warmup starting.")],
    "autotune": [
        (_WORKER, "kernel_warmup.py:192", "JIT kernel warmup finished in 0.02s."),
        (
            _WORKER,
            "kernel_warmup.py:496",
            "Using FlashInfer autotune cache file: {cache}/.cache/vllm/autotune.json. Pass "
            "--disable-flashinfer-autotune to skip autotuning.",
        ),
    ],
    "graphs": [],
    "api": [
        (_WORKER, "model_runner.py:1163", "Graph capturing finished in 1 secs, took 0.42 GiB"),
        (
            _ENGINE,
            "core.py:395",
            "init engine (profile, create kv cache, warmup model) took {took:.2f} s (compilation: 0.00 s)",
        ),
        (_API, "entry.py:139", "Starting vLLM server on http://{host}:{port}"),
    ],
}
PHASES = tuple(_LINES)


class EndError(Exception):
    """The start ends here, with an exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def start(arguments: Arguments) -> None:
    """Goes through all phases. Raises EndError."""
    began = time.monotonic()
    for phase in PHASES:
        _phase(phase, arguments, began)
    how = _read(arguments)
    if how.writes_cache and os.access(_CACHE, os.W_OK):
        Path(_CACHE, MARK).touch()


def is_cold() -> bool:
    """Whether the cache folder has no mark of an earlier start."""
    return not Path(_CACHE, MARK).exists()


def _read(arguments: Arguments) -> Behaviour:
    return behaviour.read(arguments.model, arguments.words)


def _phase(phase: str, arguments: Arguments, began: float) -> None:
    how = _read(arguments)
    values = {"model": arguments.model, "length": arguments.max_model_len, "cache": _CACHE}
    values |= {"host": arguments.host, "port": arguments.port, "took": time.monotonic() - began}
    for process, file, text in _LINES[phase]:
        log.line(process, file, text.format(**values))
    if phase == "engine":
        _memory(arguments, how.refuse_above_util)
    if phase == "autotune" and is_cold() and arguments.util > how.cold_util:
        _out_of_memory("cuda")
    if how.oom_at.get("phase") == phase:
        _out_of_memory(how.oom_at.get("how", "cuda"))
    if how.fail_at.get("phase") == phase:
        said = str(how.fail_at.get("line", "RuntimeError: the stand-in was told to fail here"))
        _dies(said, int(how.fail_at.get("status", 1)))
    while _read(arguments).hang_at == phase:
        time.sleep(_TICK)
    for done in _wait(how.phases.get(phase, how.start_seconds / len(PHASES))):
        if phase == "weights":
            log.raw(
                f"({_WORKER} pid={os.getpid()}) Loading safetensors checkpoint shards: {done * 100 // _SHARDS:3d}% "
                f"Completed | {done}/{_SHARDS} [00:0{done}<00:0{_SHARDS - done},  1.00it/s]"
            )
        if phase == "graphs":
            share = done * 100 // _SHARDS
            print(f"\rCapturing CUDA graphs (FULL): {share:3d}%|##| {done}/{_SHARDS} [00:00]", end="", file=sys.stderr)
    if phase == "graphs":
        log.raw("")


def _wait(seconds: float) -> Iterator[int]:
    """Waits in _SHARDS parts and yields each one's number."""
    for number in range(1, _SHARDS + 1):
        time.sleep(seconds / _SHARDS)
        yield number


def _memory(arguments: Arguments, limit: float) -> None:
    """vllm/v1/worker/utils.py:762."""
    if arguments.util > limit:
        asked, free = arguments.util * 95.0, limit * 95.0
        _dies(
            f"ValueError: Free memory on device cuda:0 ({free:.2f}/95.0 GiB) on startup is less than desired GPU "
            f"memory utilization ({arguments.util}, {asked:.2f} GiB). Decrease GPU memory utilization or reduce GPU "
            "memory used by other processes.",
            1,
        )


def _out_of_memory(how: str) -> None:
    if how == "kill":
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 20) * 8))
    _dies(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "94.97 GiB of which 1.31 GiB is free.",
        1,
    )


def _dies(said: str, status: int) -> None:
    log.line(_ENGINE, "core.py:1584", "EngineCore failed to start.", "ERROR")
    log.line(_ENGINE, "core.py:1584", "Traceback (most recent call last):", "ERROR")
    log.line(_ENGINE, "core.py:1584", said, "ERROR")
    log.raw(f"({_API} pid={os.getpid()}) RuntimeError: Engine core initialization failed. See root cause above.")
    raise EndError(status)
