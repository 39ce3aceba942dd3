"""How ranks meet and what is heard of them, without a GPU."""

import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.p2p_allreduce import ranks


def silent(count: int) -> tuple[ranks.Ranks, list[Connection]]:
    """Ranks that have begun, and the ends of their pipes."""
    here: Any = ranks.Ranks.__new__(ranks.Ranks)
    pairs = [Pipe() for _ in range(count)]
    here._pipes = [ours for ours, _ in pairs]
    here.processes = [SimpleNamespace(exitcode=-9) for _ in range(count)]
    return here, [theirs for _, theirs in pairs]


def test_results_are_in_order_of_rank() -> None:
    here, ends = silent(3)
    for rank in (2, 0, 1):
        ends[rank].send(("returned", rank * 10))
    assert here.results() == [0, 10, 20]


def test_only_those_asked_for_are_waited_for() -> None:
    here, ends = silent(3)
    ends[2].send(("returned", "two"))
    assert here.results([2]) == ["two"]


def test_the_first_that_raises_speaks_for_all() -> None:
    """Rank 0 waits for rank 1, which has failed: what rank 1 said is the reason."""
    here, ends = silent(2)
    ends[1].send(("raised", "Traceback: no such luck"))
    with pytest.raises(AssertionError, match="rank 1: Traceback: no such luck"):
        here.results(seconds=5.0)


def test_one_that_ends_without_a_word() -> None:
    here, ends = silent(2)
    ends[1].close()
    with pytest.raises(AssertionError, match="rank 1 ended with status -9"):
        here.results(seconds=5.0)


def test_silence_ends() -> None:
    here, ends = silent(3)
    ends[1].send(("returned", None))
    with pytest.raises(AssertionError, match=r"ranks \[0, 2\]: nothing in 0 s"):
        here.results(seconds=0.1)


@pytest.mark.parametrize("among", [None, [0, 2]])
def test_all_get_what_each_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, among: list[int] | None) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    members = [0, 1, 2] if among is None else among
    said: dict[int, list[Any]] = {}

    def body(rank: int) -> None:
        me = ranks.Rank(rank, 3, tmp_path, Pipe()[0])
        said[rank] = [me.gather((rank, time), among) for time in range(3)]

    threads = [threading.Thread(target=body, args=(rank,)) for rank in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {rank: [[(member, time) for member in members] for time in range(3)] for rank in members}
