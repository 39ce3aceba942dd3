"""The CPU tier: experts of a mixture computed by this machine's cores from MXFP4 bytes. reference.py is its contract.

    tier = CpuExperts(hidden=5120, intermediate=2304, experts=384, slots=6)
    tier.set_record(7, record)                  # layout.pack_expert's bytes, at a multiple of 64
    y = tier(x, ids, weights)                   # bfloat16 [tokens, hidden] in, fp32 out

torch is not needed: arrays may be numpy's or torch's. In a CUDA graph, `job()` fixes the memory of a call, and
`host_function("run")` and `job.address` are what cudaLaunchHostFunc takes; see test_gpu.py.
"""

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import memory, topology
from .engine import (
    BAD_SHAPE,
    CLOSED,
    DONE,
    FORKED,
    MAX_TOKENS,
    NO_RECORD,
    NOT_SUBMITTED,
    WAITING,
    Engine,
    host_functions,
    isas,
)
from .engine import Job as _Job
from .layout import ALIGNMENT, MATRICES, Record

__all__ = ["MAX_TOKENS", "CpuExperts", "ExpertsError", "Job", "host_function", "isas"]

_FORKED = "these threads are in the process that this one was forked from; make a CpuExperts here"
_NOT_YET = "this job is not computed yet: run() it, or submit() and wait()"
_FAULTS = {
    NO_RECORD: "an id names an expert that is not below `experts`, or has no record: set_record() it; outputs are NaN",
    BAD_SHAPE: "tokens or slots are more than this CpuExperts was made for",
    FORKED: _FORKED,
    CLOSED: "this CpuExperts is closed; outputs are NaN",
    NOT_SUBMITTED: _NOT_YET,
    WAITING: _NOT_YET,
}


class ExpertsError(RuntimeError):
    """A call could not be computed."""


def host_function(name: str) -> int:
    """Address of a cudaHostFn_t that takes a job's address: "submit", "wait", or "run", which is both.

    None of them calls CUDA, allocates, or fails: see `Job.check`. Raises ValueError for another name.
    """
    names = ("submit", "wait", "run")
    if name not in names:
        raise ValueError(f"host function {name!r}; expected one of {', '.join(names)}")
    return host_functions()[names.index(name)]


def default_cores() -> list[int]:
    """All cores that this process may use; of more than four one is left to whoever waits for the others."""
    found = topology.pick()
    return found[:-1] if len(found) > 4 else found


class Job:
    """A call with its memory, which may be run again and again. Made by `CpuExperts.job`."""

    def __init__(self, tier: "CpuExperts", inner: _Job, kept: Sequence[object]) -> None:
        self._tier, self._inner, self._kept = tier, inner, tuple(kept)

    @property
    def address(self) -> int:
        """What the host functions take. The job must outlive every graph that names it."""
        return self._inner.address

    def run(self) -> None:
        """Computes it, and returns when its outputs are there. Raises ExpertsError, as `submit` and `check` do."""
        self._keep()
        try:
            self._tier._engine.run(self._inner)
        finally:
            self._tier._submitted.pop(self.address, None)
        self.check()

    def submit(self) -> None:
        """Puts it into the queue; its memory is not to be touched before `wait` has returned.

        Raises ExpertsError when it is in the queue already.
        """
        self._keep()
        self._tier._engine.submit(self._inner)

    def _keep(self) -> None:
        # Until it is waited for: the threads write to its memory.
        self._tier._here()
        mine = self._inner, self._kept
        if self._tier._submitted.setdefault(self.address, mine) is not mine:
            raise ExpertsError("this job is submitted already; wait for it first, or make another one")

    def wait(self) -> None:
        """Returns when its outputs are there. Raises ExpertsError, as `check` does."""
        self._tier._here()
        self._tier._engine.wait(self._inner)
        self._tier._submitted.pop(self.address, None)
        self.check()

    def check(self) -> None:
        """Raises ExpertsError when the last run was not computed, or not yet: a host function cannot say it."""
        status = self._inner.status
        if status != DONE:
            raise ExpertsError(_FAULTS[status])


class CpuExperts:
    """Threads, and the experts whose records they read.

    hidden, intermediate: multiples of 128 and of 32. experts: how many records there can be, numbered from 0, of all
    layers. slots: the most experts of a token. limit: SwiGLU's clamp (10 for DeepSeek-V4), math.inf for none.
    activations: "int16", or "int8", which is faster at several tokens; its error is about 2 % of an expert's rms.
    isa: "auto", or one of `isas()`; all give the same bits. cores: one thread is pinned to each, `topology.pick`
    chooses them; by default all that this process may use but, of more than four, one: the thread that waits for a job
    spins too. threads: instead of cores, so many threads, not pinned.
    spin: seconds that threads wait spinning before they are parked, from which it takes tens of microseconds to wake.

    Calls from several threads are queued. Raises ValueError for what is out of range or not on this machine.
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        experts: int,
        slots: int,
        *,
        limit: float = 10.0,
        activations: str = "int16",
        isa: str = "auto",
        cores: Sequence[int] | None = None,
        threads: int | None = None,
        spin: float = 0.002,
    ) -> None:
        self.record = Record(hidden, intermediate)
        sizes = ("hidden", hidden, 1 << 20), ("intermediate", intermediate, 1 << 20)
        for name, value, most in (*sizes, ("experts", experts, 1 << 24), ("slots", slots, 64)):
            if not 0 < value <= most:
                raise ValueError(f"{name} is {value}; expected 1 to {most}")
        if activations not in ("int16", "int8"):
            raise ValueError(f"activations is {activations!r}; expected int16 or int8")
        if math.isnan(limit) or limit <= 0:
            raise ValueError(f"limit is {limit}; expected more than 0, math.inf for none")
        if not 0 <= spin <= 3600:
            raise ValueError(f"spin is {spin}; expected 0 to 3600 seconds")
        if isa != "auto" and isa not in isas():
            raise ValueError(f"isa is {isa!r}; expected auto or one of {', '.join(isas())}, which this machine has")
        if cores is not None and threads is not None:
            raise ValueError("cores and threads are both given; expected one of them")
        if threads is not None:
            if not 0 < threads <= 1024:
                raise ValueError(f"threads is {threads}; expected 1 to 1024")
            self.cores, domains = [-1] * threads, [0] * threads
        else:
            self.cores = default_cores() if cores is None else [int(core) for core in cores]
            allowed = os.sched_getaffinity(0)
            wrong = [core for core in self.cores if core not in allowed]
            if wrong or not self.cores or len(set(self.cores)) < len(self.cores):
                raise ValueError(f"cores is {self.cores}; expected different ones of {sorted(allowed)}")
            domains = topology.domains(self.cores)
        self._domains = domains
        self.experts, self.slots, self.limit, self.activations = experts, slots, limit, activations
        parts = 2 if activations == "int16" else 1
        self._records: dict[int, object] = {}
        self._submitted: dict[int, object] = {}
        self._engine = Engine(
            hidden, intermediate, experts, slots, parts, limit, isa, int(spin * 1e9), self.cores, domains
        )

    def close(self) -> None:
        """Ends the threads, after what was submitted before. Jobs raise ExpertsError from then on."""
        self._engine.close()

    def __del__(self) -> None:
        # Before the memory goes that the threads work on.
        if hasattr(self, "_engine"):
            self._engine.close()

    def _here(self) -> None:
        if self._engine.forked:
            raise ExpertsError(_FORKED)

    def isa(self, tokens: int) -> str:
        """What computes an expert of so many tokens.

        Raises ValueError when `tokens` is not 1 to MAX_TOKENS.
        """
        if not 1 <= tokens <= MAX_TOKENS:
            raise ValueError(f"tokens is {tokens}; expected 1 to {MAX_TOKENS}")
        return self._engine.isa_for(tokens)

    def set_record(self, expert: int, record: Any) -> None:
        """The record of an expert: layout.pack_expert's bytes, uint8 [record.size], at a multiple of 64; kept alive.

        Not while a job is computed that names it. Raises ValueError or TypeError for anything else.
        """
        if not 0 <= expert < self.experts:
            raise ValueError(f"expert is {expert}; expected 0 to {self.experts - 1}")
        if isinstance(record, np.ndarray) and record.dtype == np.uint8 and record.size != self.record.size:
            raise ValueError(f"record of expert {expert} has {record.size} bytes; expected {self.record.size}")
        found = memory.of(record, f"record of expert {expert}", "uint8", (self.record.size,))
        if found.address % ALIGNMENT:
            raise ValueError(f"record of expert {expert} is at {found.address:#x}; expected a multiple of {ALIGNMENT}")
        self._engine.set_record(expert, found.address)
        self._records[expert] = record

    def place(self, expert: int) -> str:
        """Moves the rows of an expert's record to the memory nodes of the threads that read them.

        Says in a line what was done: nothing on a machine with one node, or for threads without cores. Raises KeyError
        for an expert without a record, OSError when the system refuses.
        """
        found = memory.of(self._records[expert], "record", "uint8", (self.record.size,))
        if len(topology.nodes()) < 2:
            return "one memory node: nothing to place"
        if min(self.cores) < 0:
            return "threads that are not pinned: nothing to place"
        node_of = {core: node for node, its in topology.nodes().items() for core in its}
        said = []
        for domain in sorted(set(self._domains)):
            node = node_of.get(self.cores[self._domains.index(domain)], 0)
            for matrix in MATRICES:
                begin, end = self._rows(matrix, domain)
                size = self.record.matrix_bytes(matrix) // self.record.shape(matrix)[0]
                offset = found.address + self.record.offset(matrix) + begin * size
                said.append(f"{matrix}: {topology.bind(offset, (end - begin) * size, node)}")
        return "; ".join(said)

    def _rows(self, matrix: str, domain: int) -> tuple[int, int]:
        # As the engine divides units of 16 rows of w1 and w3, and of 32 of w2.
        size = 32 if matrix == "w2" else 16
        units, threads = self.record.shape(matrix)[0] // size, len(self.cores)
        before = sum(other < domain for other in self._domains)
        after = before + self._domains.count(domain)
        return units * before // threads * size, units * after // threads * size

    def job(self, x: Any, ids: Any, weights: Any, *, out32: Any = None, out16: Any = None, base: int = 0) -> Job:
        """A call that reads and writes this memory whenever it runs.

        x: bfloat16 (in numpy also uint16) [tokens, hidden], 1 to 8 tokens. ids: int32 [tokens, slots], below 0 for
        experts that others compute. weights: fp32, as ids. out32, out16: fp32 and bfloat16 [tokens, hidden], either or
        both, and no memory of the others. base: added to the ids that are not below 0. Raises TypeError or ValueError
        for anything else.
        """
        tokens = memory.of(x, "x", "bfloat16", (None, self.record.hidden))
        count = tokens.shape[0]
        if not 1 <= count <= MAX_TOKENS:
            raise ValueError(f"x has {count} tokens; expected 1 to {MAX_TOKENS}")
        its = memory.of(ids, "ids", "int32", (count, None))
        slots = its.shape[1]
        if not 1 <= slots <= self.slots:
            raise ValueError(f"ids has {slots} slots; expected 1 to {self.slots}")
        if not 0 <= base < self.experts:
            raise ValueError(f"base is {base}; expected 0 to {self.experts - 1}")
        factors = memory.of(weights, "weights", "float32", (count, slots))
        used = {"x": tokens, "ids": its, "weights": factors}
        address = {"out32": 0, "out16": 0}
        for name, out, dtype in (("out32", out32, "float32"), ("out16", out16, "bfloat16")):
            if out is None:
                continue
            found = memory.of(out, name, dtype, (count, self.record.hidden), written=True)
            for other, taken in used.items():
                if found.overlaps(taken):
                    raise ValueError(f"{name} overlaps {other}; expected memory of its own")
            used[name] = found
            address[name] = found.address
        first, second = address.values()
        if not first and not second:
            raise ValueError("out32 and out16 are both missing; expected at least one of them")
        inner = _Job(self._engine, tokens.address, its.address, factors.address, first, second, count, slots, base)
        return Job(self, inner, (x, ids, weights, out32, out16))

    def __call__(self, x: Any, ids: Any, weights: Any, *, base: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Sums over the experts of each token, fp32 [tokens, hidden]; arguments and errors as `job` and `run` have."""
        out = np.empty(memory.of(x, "x", "bfloat16", (None, self.record.hidden)).shape, np.float32)
        self.job(x, ids, weights, out32=out, base=base).run()
        return out
