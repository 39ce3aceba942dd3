"""The hybrid's store: every routed expert of an MXFP4 checkpoint as one record of the CPU tier's layout."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.cpu_experts import layout
from serving.experts.storage.header import Header, Key
from serving.experts.storage.reader import Container, Expect
from serving.experts.storage.refusal import StorageError
from serving.experts.storage.writer import Writer
from tools.experts.checkpoint.checkpoint import Checkpoint

KIND = "mxfp4-store"
LAYOUT = "superblock-16x128"


@dataclass(frozen=True)
class Built:
    """A store that was written.

    Attributes:
        content: its content id, 64 hex digits.
        records: how many records it has.
        resumed: how many of them an earlier run had written.
    """

    content: str
    records: int
    resumed: int


def record_of(checkpoint: Checkpoint) -> layout.Record:
    """Sizes of an expert's record. Raises StorageError for another scheme than MXFP4, or sizes without a layout."""
    if checkpoint.scheme != "mxfp4":
        raise StorageError(
            f"{checkpoint.path}: its experts are {checkpoint.scheme}; the store holds a checkpoint's own MXFP4 bytes: "
            "for other schemes make a 2-bit pack with `moet experts quantize`"
        )
    try:
        return layout.Record(checkpoint.hidden, checkpoint.intermediate)
    except ValueError as error:
        raise StorageError(f"{checkpoint.path}: {error}") from None


def header_of(checkpoint: Checkpoint) -> Header:
    """The header of a checkpoint's store. Raises StorageError as `record_of`."""
    record = record_of(checkpoint)
    return Header(
        kind=KIND,
        tag=f"{checkpoint.model_type or 'model'} MXFP4 experts, rows of 16 by inputs of 128",
        layers=checkpoint.layers,
        experts=checkpoint.experts,
        slot_bytes=record.size,
        checkpoint=checkpoint.identity,
        extra={"hidden": checkpoint.hidden, "intermediate": checkpoint.intermediate, "layout": LAYOUT},
    )


def pack(checkpoint: Checkpoint, key: Key) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """The record of an expert, uint8 [slot_bytes]."""
    matrices = {}
    for name in layout.MATRICES:
        found = checkpoint.read(*key, name)
        matrices[name] = (found.codes, np.asarray(found.scales, np.uint8))
    return layout.pack_expert(record_of(checkpoint), matrices)


def build(
    checkpoint: Checkpoint,
    out: Path,
    advance: Callable[[int, int], None],
    workers: int | None = None,
    replace: bool = False,
    restart: bool = False,
) -> Built:
    """Writes the store, or goes on with one that was stopped. About three records of memory a worker.

    Args:
        checkpoint: what to read.
        out: the container's folder.
        advance: called with (records there, records in all) after each record.
        workers: threads; by default one for each CPU that this process may use.
        replace: whether a finished container there is replaced.
        restart: whether a draft there is thrown away.

    Raises StorageError, AlreadyCompleteError; what was written stays as a draft.
    """
    header = header_of(checkpoint)
    threads = workers or len(os.sched_getaffinity(0))

    def one(key: Key) -> None:
        writer.put(*key, pack(checkpoint, key))

    with Writer.open(out, header, replace=replace, restart=restart) as writer:
        advance(writer.done, writer.total)
        with ThreadPoolExecutor(threads) as pool:
            for _ in _bounded(pool, one, writer.missing(), 2 * threads):
                advance(writer.done, writer.total)
        return Built(writer.commit(), writer.total, writer.resumed)


def check(checkpoint: Checkpoint, folder: Path, number: int, seed: int, advance: Callable[[int], None]) -> list[Key]:
    """Re-reads `number` records, chosen by `seed`, and compares what they unpack to with the checkpoint's own bytes.

    Returns the records that were compared. Raises StorageError naming the first that differs.
    """
    record = record_of(checkpoint)
    expect = Expect(KIND, checkpoint.identity, experts=checkpoint.experts, slot_bytes=record.size)
    with Container.open(folder, expect) as container:
        present = container.present()
        chosen = sorted(random.Random(seed).sample(present, min(number, len(present))))
        for key in chosen:
            flat = np.frombuffer(container.read(*key), np.uint8)
            for name, (codes, scales) in layout.unpack_expert(record, flat).items():
                there = checkpoint.read(*key, name)
                if not (np.array_equal(codes, there.codes) and np.array_equal(scales, there.scales)):
                    raise StorageError(
                        f"{container.records}: {name} of layer {key[0]}, expert {key[1]} is not the checkpoint's: "
                        "the store or the checkpoint changed; build the store again with --replace"
                    )
            advance(container.header.slot_bytes)
    return chosen


def _bounded(pool: ThreadPoolExecutor, work: Callable[[Key], None], keys: Iterator[Key], most: int) -> Iterator[None]:
    """Runs `work` over `keys` with at most `most` under way; yields after each; the first failure ends it."""
    running: set[Future[None]] = set()
    todo: Sequence[Key] | Iterator[Key] = list(keys)
    rest = iter(todo)
    try:
        while True:
            while len(running) < most and (key := next(rest, None)) is not None:
                running.add(pool.submit(work, key))
            if not running:
                return
            over, running = wait(running, return_when=FIRST_COMPLETED)
            for future in over:
                future.result()
                yield
    finally:
        for future in running:
            future.cancel()
