"""CUDA streams without a GPU: who is ordered before whom, and which accesses of memory are not.

Each stream has a vector clock. A kernel is what a stand-in says it reads and writes (`Streams.kernel`); one that
touches what an unordered kernel wrote, or writes what an unordered one read, is a race.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
import torch


class Stream:
    """What the model is handed for a torch.cuda.Stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: dict[str, int] = {}

    def wait_stream(self, other: "Stream") -> None:
        """What comes next on this stream is after all that is on the other."""
        for name, time in other.clock.items():
            self.clock[name] = max(self.clock.get(name, 0), time)


class Streams:
    """Two streams, the caller's and another, in place of CUDA's; `races` are the accesses that nothing orders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.main, self.side = Stream("main"), Stream("side")
        self.current = self.main
        self.capturing = True
        self.races: list[str] = []
        # Every kernel with its stream, in the order of their launches.
        self.launched: list[tuple[str, str]] = []
        # Storages that the other stream's kernels touch, and those that the allocator is told of.
        self.beside: set[int] = set()
        self.recorded: set[int] = set()
        self._written: dict[int, tuple[str, int, str]] = {}
        self._read: dict[int, list[tuple[str, int, str]]] = {}
        # So that no storage is another's address again.
        self._alive: list[torch.Tensor] = []
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "stream", self._on)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: self._record(tensor, stream))

    @contextmanager
    def _on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def _record(self, tensor: torch.Tensor, stream: Stream) -> None:
        assert stream is self.side
        self.recorded.add(storage(tensor))

    def kernel(self, name: str, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]) -> None:
        """Launches a kernel that reads and writes these tensors on the current stream."""
        stream, reads, writes = self.current, list(reads), list(writes)
        stream.clock[stream.name] = stream.clock.get(stream.name, 0) + 1
        me = (stream.name, stream.clock[stream.name], name)
        self.launched.append((name, stream.name))
        self._alive += [*reads, *writes]
        for tensor in [*reads, *writes]:
            self._after(me, self._written.get(storage(tensor)))
            if stream is self.side:
                self.beside.add(storage(tensor))
        for tensor in writes:
            for reader in self._read.pop(storage(tensor), []):
                self._after(me, reader)
            self._written[storage(tensor)] = me
        for tensor in reads:
            self._read.setdefault(storage(tensor), []).append(me)

    def _after(self, me: tuple[str, int, str], other: tuple[str, int, str] | None) -> None:
        if other is not None and self.current.clock.get(other[0], 0) < other[1]:
            self.races.append(f"{me[2]} on {me[0]} is not after {other[2]} on {other[0]}")

    def names(self, stream: Stream) -> list[str]:
        """The kernels of one stream, in the order of their launches."""
        return [name for name, where in self.launched if where == stream.name]


def storage(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor is a view of."""
    return int(tensor.untyped_storage().data_ptr())
