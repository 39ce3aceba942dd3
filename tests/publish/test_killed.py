"""A publish that is killed at any point, and two at once: what is there at the end is the same."""

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

import pytest

from tests.faults import killer
from tests.publish.place import Place, environment
from tests.registry_faults import proxy as fault

_POINTS = 20


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    return {}


@pytest.mark.parametrize("part", range(_POINTS))
def test_killed_and_repeated(
    new_place: Callable[[str], Place], whole: dict[str, Any], counted: dict[str, int], part: int
) -> None:
    if not counted:
        first = new_place("counted")
        events = killer.events("tools.moet.main", first.arguments(), environment=environment(first))
        assert first.published() == whole
        counted["events"] = len(events)
        for kind in ("socket.connect", "send", "subprocess.Popen", "open"):
            assert any(event.startswith(kind) for event in events), f"no {kind} among the events"
    place = new_place("killed")
    at = list(killer.spread(counted["events"], _POINTS))[part]
    outcome = killer.run(at, "tools.moet.main", place.arguments(), environment=environment(place))
    # Three threads push: the last events of one run may be more than those of another.
    assert outcome.killed or (part == _POINTS - 1 and outcome.status == 0), outcome
    half = place.published()
    for tag, digest in half["tags"].items():
        assert whole["tags"][tag] == digest
    again = killer.run(0, "tools.moet.main", place.arguments(), environment=environment(place))
    assert again.status == 0, again.errors
    assert place.published() == whole
    assert place.leftovers() == []


def test_two_at_once(place: Place, whole: dict[str, Any]) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(_: fault.Request) -> None:
        held.set()
        assert go_on.wait(120)

    place.proxy.add(fault.calls(hold), "PUT", "/manifests/vllm", times=1)
    with start(place) as one:
        assert held.wait(120)
        with start(place) as two:
            said = until(two.stderr, "waiting for process")
            assert said == f"waiting for process {one.pid}, which holds {place.toy.root}/.git/moet/publish.lock\n"
            go_on.set()
            for running in (one, two):
                _, errors = running.communicate(timeout=120)
                assert running.returncode == 0, errors
    assert place.published() == whole
    assert place.proxy.count("PUT", "/manifests/vllm") == 2
    assert place.leftovers() == []


def start(place: Place) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tools.moet.main", *place.arguments()]
    variables = {**environment(place), "PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(stream: IO[str] | None, beginning: str) -> str:
    assert stream
    return next(line for line in stream if line.startswith(beginning))
