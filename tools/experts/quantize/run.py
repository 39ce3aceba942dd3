"""Quantizes a checkpoint into a pack, expert by expert, on all cores, in memory that is known beforehand."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.common import planes
from serving.experts.storage.header import Header
from serving.experts.storage.reader import Container, Expect
from serving.experts.storage.refusal import AlreadyCompleteError
from serving.experts.storage.writer import Writer
from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import MATRICES, Checkpoint, Scratch
from tools.experts.quantize import expert as experts
from tools.experts.quantize import facts, naming
from tools.experts.quantize.counted import ByExpert, Key
from tools.experts.quantize.journal import NAME as JOURNAL
from tools.experts.quantize.journal import Journal
from tools.experts.quantize.report import Report, summarize

BASE_KIND = "w2-pack"
DELTA_KINDS = {"fp4": "fp4-pack", "quintal": "quintal-pack"}

# What a thread needs beside its buffers: a row of 16, tables, its stack as far as it is used.
THREAD_BYTES = 2 << 20

# What is kept of every expert until the end: its counts, its place, its checksums.
EXPERT_BYTES = 2 << 10


@dataclass(frozen=True)
class Result:
    """What a run did.

    Attributes:
        content: the base pack's content id.
        delta_content: the delta pack's, None where there is none.
        report: of the whole pack, what earlier runs did included.
        counts: of every expert.
        resumed: experts that an earlier run had done.
        read: bytes of the checkpoint that were read.
        buffers: the bound of memory, as buffer_bytes() has it.
    """

    content: str
    delta_content: str | None
    report: Report
    counts: ByExpert
    resumed: int
    read: int
    buffers: int


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def buffer_bytes(checkpoint: Checkpoint, delta: str | None, threads: int) -> int:
    """The bound of memory: what all threads hold of the checkpoint and of the pack at once, and of all experts' counts.

    What the program and the names of the tensors take comes on top, and is there as soon as the checkpoint is open.
    A report on every tensor (report.file()) takes some 8 KiB an expert more, at the end.
    """
    slots = planes.base_slot(checkpoint.hidden, checkpoint.intermediate)
    slots += experts.slot_bytes(checkpoint.hidden, checkpoint.intermediate, delta)
    count = len(checkpoint.layers) * checkpoint.experts
    return threads * (checkpoint.expert_bytes + slots + THREAD_BYTES) + count * EXPERT_BYTES


def header(checkpoint: Checkpoint, kind: str, zero_mode: str, tag: str = "") -> Header:
    """The header of a pack of `kind` of BASE_KIND or DELTA_KINDS."""
    of_delta = {value: key for key, value in DELTA_KINDS.items()}.get(kind)
    hidden, intermediate = checkpoint.hidden, checkpoint.intermediate
    base = planes.base_slot(hidden, intermediate)
    return Header(
        kind=kind,
        tag=tag or f"{checkpoint.model_type} {kind}",
        layers=checkpoint.layers,
        experts=checkpoint.experts,
        slot_bytes=base if of_delta is None else experts.slot_bytes(hidden, intermediate, of_delta),
        checkpoint=checkpoint.identity,
        zero_mode=zero_mode,
        quantizer_abi=facts.QUANTIZER_ABI,
        extra={
            "hidden": hidden,
            "intermediate": intermediate,
            "scheme": checkpoint.scheme,
            "model_type": checkpoint.model_type,
            "swiglu_limit": checkpoint.swiglu_limit,
            "names": naming.stated(checkpoint),
        },
    )


def run(
    checkpoint: Checkpoint,
    path: Path,
    *,
    delta: str | None = None,
    delta_path: Path | None = None,
    zero_mode: str = "auto",
    threads: int | None = None,
    replace: bool = False,
    restart: bool = False,
    tag: str = "",
    sync_bytes: int = 256 << 20,
    advance: Callable[[int], None] = lambda _: None,
    reported: Callable[[Report, ByExpert], None] = lambda *_: None,
) -> Result:
    """Quantizes all experts into the pack in the folder `path`, and its delta into another one.

    A run that was stopped, in whatever way, goes on where it was; what comes out is the same.

    Args:
        checkpoint: what is quantized.
        path: of the base pack.
        delta: "fp4" or "quintal", for a delta pack too.
        delta_path: of the delta pack; by default `path` with "-" and its name added.
        zero_mode: of facts.ZERO_MODES.
        threads: how many work at once; all cores by default.
        replace: whether packs that are there are replaced.
        restart: whether drafts that are there are thrown away.
        tag: a line for people.
        sync_bytes: after so many bytes what was done is made safe.
        advance: told the bytes of the checkpoint that are done, as they are.
        reported: told the report and the counts of every expert before the packs are in place.

    Raises UserError for a checkpoint that cannot be quantized, folders that are taken, and what the storage refuses.
    """
    threads = threads or cores()
    kinds = [(BASE_KIND, path)]
    if delta is not None:
        kinds.append((DELTA_KINDS[delta], delta_path or path.with_name(f"{path.name}-{delta}")))
    _distinct(checkpoint, [folder for _, folder in kinds])
    with ExitStack() as stack:
        writers: dict[str, Writer] = {}
        complete: AlreadyCompleteError | None = None
        for kind, folder in kinds:
            try:
                own = header(checkpoint, kind, zero_mode, tag)
                writers[kind] = stack.enter_context(Writer.open(folder, own, replace, restart, sync_bytes))
            except AlreadyCompleteError as error:
                complete = complete or error
                # Of a run that was killed right after it had committed.
                (folder / JOURNAL).unlink(missing_ok=True)
        if complete is not None and not writers:
            raise complete
        drafts = next(folder for kind, folder in kinds if kind in writers)
        layers = ",".join(map(str, checkpoint.layers))
        journal = Journal(drafts, f"{checkpoint.identity} {zero_mode} {facts.QUANTIZER_ABI} {layers}")
        stack.callback(journal.close)
        todo = [
            key for key in _keys(checkpoint) if key not in journal or any(key not in one for one in writers.values())
        ]
        total = len(checkpoint.layers) * checkpoint.experts
        advance((total - len(todo)) * checkpoint.expert_bytes)
        _work(_Job(checkpoint, writers, journal, delta, zero_mode, advance), todo, threads)
        counts = journal.all()
        report = summarize(counts)
        reported(report, counts)
        contents = {}
        # The base comes last: a run that is killed between the two finds a draft.
        for kind, writer in reversed(writers.items()):
            contents[kind] = writer.commit(extra={"report": report.document()})
        journal.path.unlink(missing_ok=True)
    for kind, folder in kinds:
        if kind not in contents:
            with Container.open(folder, Expect(kind=kind)) as there:
                contents[kind] = there.content
    return Result(
        contents[BASE_KIND],
        contents.get(DELTA_KINDS[delta]) if delta else None,
        report,
        counts,
        total - len(todo),
        len(todo) * checkpoint.expert_bytes,
        buffer_bytes(checkpoint, delta, threads),
    )


def _distinct(checkpoint: Checkpoint, folders: list[Path]) -> None:
    """Raises UserError where the checkpoint, the pack and its delta would share a folder."""
    taken = {checkpoint.path.resolve(): "the checkpoint's"}
    for folder in folders:
        if owner := taken.get(folder.resolve()):
            raise UserError(f"{folder}: is {owner} folder; name another one for what is written")
        taken[folder.resolve()] = "the base pack's"


def _keys(checkpoint: Checkpoint) -> Iterator[Key]:
    return ((layer, expert) for layer in checkpoint.layers for expert in range(checkpoint.experts))


@dataclass
class _Job:
    """What all threads share."""

    checkpoint: Checkpoint
    writers: dict[str, Writer]
    journal: Journal
    delta: str | None
    zero_mode: str
    advance: Callable[[int], None]


def _work(job: _Job, todo: list[Key], threads: int) -> None:
    """Has the threads take one expert after the other; the first error stops them all."""
    keys, lock, stop = iter(todo), threading.Lock(), threading.Event()

    def take() -> Key | None:
        with lock:
            return None if stop.is_set() else next(keys, None)

    def loop() -> None:
        scratch = Scratch()
        try:
            while (key := take()) is not None:
                _one(job, key, scratch)
                with lock:
                    job.advance(job.checkpoint.expert_bytes)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(max(1, min(threads, len(todo)))) as pool:
        try:
            futures = [pool.submit(loop) for _ in range(min(threads, len(todo)))]
            wait(futures)
        finally:
            stop.set()
        for future in futures:
            future.result()


def _one(job: _Job, key: Key, scratch: Scratch) -> None:
    checkpoint = job.checkpoint
    hidden, intermediate = checkpoint.hidden, checkpoint.intermediate
    matrices = [checkpoint.read(*key, name, scratch) for name in MATRICES]
    base = scratch.buffer("base", planes.base_slot(hidden, intermediate))
    own = None if job.delta is None else scratch.buffer("delta", experts.slot_bytes(hidden, intermediate, job.delta))
    try:
        counts = experts.quantize(matrices, job.zero_mode, base, own, job.delta)
    except ValueError as error:
        raise UserError(
            f"{checkpoint.path}: layer {key[0]}, expert {key[1]}: {error}; it cannot be quantized"
        ) from None
    job.journal.put(key, counts)
    for kind, writer in job.writers.items():
        writer.put(*key, base if kind == BASE_KIND else own)


def overview(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint would take in each form, in bytes."""
    hidden, intermediate = checkpoint.hidden, checkpoint.intermediate
    count = len(checkpoint.layers) * checkpoint.experts
    slots = {
        "as it is": checkpoint.expert_bytes,
        "2 bits": planes.base_slot(hidden, intermediate),
        "FP4 delta": planes.fp4_slot(hidden, intermediate),
        "quintal delta": planes.quintal_slot(hidden, intermediate),
    }
    return {name: {"expert": size, "all": size * count} for name, size in slots.items()}
