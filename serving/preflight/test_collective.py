"""The program itself, on CPUs: torch with gloo, and processes that hang, fail and die."""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from serving.preflight import collective, collective_result, collective_run
from serving.preflight.collective_result import Document


def run(*words: str) -> Document:
    """Runs the program as a container does, by its text."""
    text = collective_run.text()
    # On CPUs each of the largest sums takes a second.
    for times in ("_REPEATS = 15\n", "_ROUNDS = 5\n"):
        assert text.count(times) == 1
        text = text.replace(times, f"{times.split()[0]} = 2\n")
    done = subprocess.run(
        [sys.executable, "-c", text, "--backend=gloo", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    found = collective_result.parse(line, 4)
    assert found is not None and found.torch and found.copies is None
    return found


def test_groups_sum_one_after_another() -> None:
    found = run("--tp=2", "--groups=2", "--silent-s=600")
    assert [group.devices for group in found.groups] == [(0, 1), (2, 3)]
    for group in found.groups:
        assert (group.state, group.where, group.errors, group.bad) == ("done", (), (), False)
        assert [one.bytes for one in group.sums] == list(collective.SIZES)
        assert all(one.right and one.microseconds > 0 for one in group.sums)
        assert group.rate > 0


def test_rank_that_stays_away_is_a_hang_with_its_place() -> None:
    (group,) = run("--tp=2", "--late=1", "--silent-s=15").groups
    assert group.state == "hung" and group.bad and not group.sums
    assert sorted(group.where) == ["meeting the others", "sums of 5,120 bytes"]


def test_no_gpu_is_said_by_copies_and_sums() -> None:
    done = subprocess.run(
        [sys.executable, "-c", collective_run.text(), "--tp=2"], capture_output=True, text=True, check=True
    )
    found = collective_result.parse(done.stdout, 2)
    assert found is not None and found.copies is not None
    assert found.copies.errors == ("process 0: RuntimeError: torch sees 0 GPUs, expected 2",)
    assert found.groups[0].state == "failed" and len(found.groups[0].errors) == 2


def test_image_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", collective_run.text(), "--tp=2"], capture_output=True, text=True, check=True
    )
    assert collective_result.parse(done.stdout, 2) == Document("moet.all-reduce.v1", False, None, ())


# A process that dies leaves the others half a second.
SPOKEN = multiprocessing.get_context("fork").Event()


def dies(say: collective.Say) -> None:
    say("at", "the cliff")
    assert SPOKEN.wait(60)
    os.kill(os.getpid(), signal.SIGKILL)


def waits(say: collective.Say) -> None:
    say("at", "the others")
    SPOKEN.set()
    time.sleep(3600)


def fails(say: collective.Say) -> None:
    say("at", "the wall")
    raise ValueError("no\nway")


def ends(say: collective.Say) -> None:
    say("at", "the end")
    say("answer", 42)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "_GRACE_S", 0.5)


def test_process_that_dies_ends_the_stage() -> None:
    SPOKEN.clear()
    processes, ended = collective.stage([dies, waits], 60, 60)
    assert ended == {
        "state": "failed",
        "where": ["the cliff", "the others"],
        "errors": [f"process 0: ended with status -{signal.SIGKILL.value}"],
    }
    assert not any(one.process.is_alive() for one in processes)


def test_process_that_fails_says_why_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "_GRACE_S", 60)
    _, ended = collective.stage([ends, fails], 60, 60)
    assert ended == {"state": "failed", "where": ["the wall"], "errors": ["process 1: ValueError: no way"]}


def test_silence_is_a_hang_and_what_others_found_stays() -> None:
    processes, ended = collective.stage([ends, waits], 60, 3)
    assert ended == {"state": "hung", "where": ["the others"], "errors": []}
    assert processes[0].found == {"answer": 42} and not processes[1].process.is_alive()


def test_first_word_has_its_own_deadline() -> None:
    _, ended = collective.stage([lambda _say: time.sleep(3600)], 0.5, 3600)
    assert ended == {"state": "hung", "where": ["its start"], "errors": []}


class Summing:
    """torch.distributed of which one sum, counted from 0, comes out wrong."""

    def __init__(self, wrong: int | None, how: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.wrong, self.how, self.count = wrong, how, 0

    def all_reduce(self, data: torch.Tensor) -> None:
        for other in (0, 2, 3):
            data += collective.term(torch, data.nbytes, other, self.count, data.device)
        if self.count == self.wrong:
            data.copy_(self.how(data))
        self.count += 1


def one_more(data: torch.Tensor) -> torch.Tensor:
    return torch.cat([data[:-1], data[-1:] + 1])


def moved(data: torch.Tensor) -> torch.Tensor:
    return torch.roll(data, 512)


def left(data: torch.Tensor) -> torch.Tensor:
    terms = (collective.term(torch, data.nbytes, number, 0, data.device) for number in range(4))
    return functools.reduce(torch.add, terms)


@pytest.mark.parametrize("how", [one_more, moved, left])
@pytest.mark.parametrize(("wrong", "right"), [(None, True), (1, False), (collective._ROUNDS - 1, False)])
def test_one_wrong_sum_is_seen(wrong: int | None, right: bool, how: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert collective._right(torch, Summing(wrong, how), 1, 4, 5 << 10, torch.device("cpu")) is right


def test_sums_of_sixteen_ranks_are_exact_in_bf16() -> None:
    terms = [collective.term(torch, 128, number, 4, "cpu") for number in range(16)]
    exact = functools.reduce(torch.add, (term.to(torch.int64) for term in terms))
    assert exact.max() > 128
    for order in (terms, terms[::-1]):
        assert torch.equal(functools.reduce(torch.add, order).to(torch.int64), exact)


def test_slowest_and_worst_process_counts() -> None:
    sums: list[dict[str, Any]] = [
        {"bytes": 5, "microseconds": 1.0, "right": True},
        {"bytes": 5, "microseconds": 3.0, "right": False},
    ]
    assert collective.merged(sums) == {"bytes": 5, "microseconds": 3.0, "right": False}


def test_wrong_usage_is_status_2() -> None:
    done = subprocess.run([sys.executable, "-c", collective_run.text()], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--tp" in done.stderr and not done.stdout
