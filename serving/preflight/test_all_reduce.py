"""What is said of the program's document, and when the program is run at all."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from images.engine.errors import EngineError
from serving.containers.state import ContainerState
from serving.launch.launch import Launch
from serving.preflight import all_reduce, collective, collective_result, collective_run
from serving.preflight.host import Host
from serving.preflight.made_up import FakeDocker, card, checkpoint, only, smi, subject
from serving.preflight.result import Result

# NCCL 2.28's log on two GPUs.
LOG = """\
h200:71:71 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
h200:71:71 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
h200:72:72 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
h200:72:72 [1] transport/shm.cc:1 NCCL WARN no room
h200:72:72 [1] transport/shm.cc:1 NCCL WARN no room
"""


CARDS = "".join(card(number) for number in range(4))


def no_engine() -> collective_run.Containers:
    raise EngineError("no engine answers at x")


def copies(**changes: Any) -> dict[str, Any]:
    return {"state": "done", "where": [], "errors": [], "closed": [], "wrong": [], **changes}


def group(us: float = 12.0, **changes: Any) -> dict[str, Any]:
    sums = [{"bytes": size, "microseconds": us * max(1, size >> 14), "right": True} for size in collective.SIZES]
    given = {"devices": [0, 1, 2, 3], "state": "done", "where": [], "errors": [], "sums": sums, "nccl": "2.30.7"}
    return {**given, "ways": {"P2P/CUMEM": 8}, "warnings": [], **changes}


def document(*groups: dict[str, Any], of_copies: dict[str, Any] | None = None, torch: bool = True) -> str:
    found = of_copies or copies()
    return json.dumps({"schema": collective.SCHEMA, "torch": torch, "copies": found, "groups": list(groups)})


@dataclass
class FakeContainer:
    """A container that ends when it has been asked often enough."""

    log: str
    state_: ContainerState = field(default_factory=lambda: ContainerState("x", "exited", 0))
    polls: int = 2
    removed: bool = False

    def state(self) -> ContainerState:
        self.polls -= 1
        return self.state_ if self.polls < 0 else ContainerState("x", "running")

    def start(self) -> None:
        """Starts it."""

    def logs(self) -> str:
        return self.log

    def remove(self) -> None:
        self.removed = True


@dataclass
class FakeContainers:
    """An engine whose containers write these logs, one after another."""

    logs: list[str]
    left: list[FakeContainer] = field(default_factory=list)
    made: list[tuple[Launch, str, FakeContainer]] = field(default_factory=list)
    closed: bool = False
    polls: int = 2

    def create(self, launch: Launch, name: str, labels: Mapping[str, str], key: str | None) -> FakeContainer:
        assert labels == collective_run.LABELS and key is None
        made = FakeContainer(self.logs.pop(0), polls=self.polls)
        self.made.append((launch, name, made))
        return made

    def find(self, name: str) -> None:
        return None

    def labelled(self, labels: Mapping[str, str]) -> list[FakeContainer]:
        return self.left

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_run, "_POLL_S", 0.001)


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    assert re.fullmatch(r"all-reduce: GPU \d(, \d){3}, about a minute; 10 where they hang", what)
    yield


def gpus(folder: Path, containers: Callable[[], collective_run.Containers] = no_engine) -> Host:
    """A host with four idle cards."""
    return Host(run=smi(folder / "bin", CARDS), containers=containers)


def looked(model: Path, *logs: str, given: tuple[str, ...] = ()) -> list[Result]:
    engine = FakeContainers(list(logs))
    made = gpus(model.parent, lambda: engine)
    found = all_reduce.check(subject(model, *given), made, FakeDocker(), doing)
    assert engine.closed and not engine.logs and all(one.removed for _, _, one in engine.made)
    return found


def test_right_and_fast(model: Path) -> None:
    first, second = looked(model, f"moet: attested\n{document(group())}\n")
    assert (first.check, first.state) == ("GPU copies", "ok")
    assert first.what == "12 of 12 arrive; every GPU reads every other"
    said = "GPU 0, 1, 2, 3: right; 12.0 us for 10 KiB, 2.0 GB/s for 64 MiB, by P2P/CUMEM (NCCL 2.30.7)"
    assert (second.check, second.state, second.what) == ("all-reduce", "ok", said)


def test_container_is_the_servers_without_folders_network_and_key(model: Path) -> None:
    engine, server = FakeContainers([document(group())]), subject(model, "EXTRA_DOCKER_ARGS=--env=NCCL_PROTO=LL")
    made = gpus(model.parent, lambda: engine)
    all_reduce.check(server, made, FakeDocker(), doing)
    ((launch, name, _),) = engine.made
    assert name == "dsv41.all-reduce"
    assert (launch.network, launch.binds, launch.key) == ("none", (), None)
    assert launch.environment == {"NCCL_P2P_LEVEL": "SYS"}
    assert launch.docker_options == ("--env=NCCL_PROTO=LL",)
    assert (launch.gpus, launch.ulimits) == (server.launch.gpus, server.launch.ulimits)
    assert launch.arguments[:3] == ("exec", "python3.11", "-c") and launch.arguments[4:] == ("--tp=4", "--groups=1")
    assert "def stage(" in launch.arguments[3]


def test_slow_is_a_hint_with_what_is_usual(model: Path) -> None:
    result = only(looked(model, document(group(us=31.0))), "all-reduce")
    assert result.state == "hint" and "31.0 us" in result.what and "more than 25 us" in result.why
    assert only(looked(model, document(group(us=25.0))), "all-reduce").state == "ok"


def test_host_memory_though_gpus_may_read_each_other(model: Path) -> None:
    by_memory = document(group(ways={"SHM/direct": 8}))
    result = only(looked(model, by_memory, given=("NCCL_P2P_LEVEL=PHB",)), "all-reduce")
    assert (result.state, result.mend) == ("hint", "--set NCCL_P2P_LEVEL=SYS")
    assert "NCCL_DEBUG=INFO" in only(looked(model, by_memory), "all-reduce").mend
    result = only(looked(model, document(group(ways={}))), "all-reduce")
    assert result.state == "ok" and "by ways that NCCL does not name" in result.what


def test_closed_driver_is_one_hint_and_no_more(model: Path) -> None:
    closed = copies(closed=[[0, 1], [1, 0]])
    first, second = looked(model, document(group(us=20.0, ways={"SHM/direct": 8}), of_copies=closed))
    assert first.state == "hint" and first.what == "12 of 12 arrive; 2 by host memory: 0 to 1, 1 to 0"
    assert second.state == "ok"


def test_changed_bytes(model: Path) -> None:
    result = only(looked(model, document(group(), of_copies=copies(wrong=[[2, 3]]))), "GPU copies")
    assert (result.state, result.what) == ("finding", "1 of 12 arrive with other bytes: 2 to 3")


def hung(**changes: Any) -> dict[str, Any]:
    return group(state="hung", where=["sums of 5,120 bytes"], sums=[], nccl="", ways={}, **changes)


def test_hang_is_tried_again_without_p2p(model: Path) -> None:
    first, second, third = looked(model, document(hung(warnings=["no room"])), document(group(us=24.0)))
    assert first.state == "ok"
    assert second.state == "finding"
    assert second.what == "GPU 0, 1, 2, 3: hung at sums of 5,120 bytes; NCCL says: no room"
    assert second.mend.startswith("IOMMU and ACS, above: ")
    assert (third.check, third.state) == ("all-reduce without P2P", "hint")
    assert third.what == "right with NCCL_P2P_DISABLE=1, 24.0 us for 10 KiB"
    assert third.mend.endswith("until then --set NCCL_P2P_LEVEL=LOC")


def test_second_run_differs_in_one_variable(model: Path) -> None:
    engine = FakeContainers([document(hung()), document(group())])
    all_reduce.check(subject(model), gpus(model.parent, lambda: engine), FakeDocker(), doing)
    (first, _, _), (second, _, _) = engine.made
    assert second.environment == {**first.environment, "NCCL_P2P_DISABLE": "1"}


def test_hang_that_stays_is_another_finding(model: Path) -> None:
    results = looked(model, document(hung()), document(hung()))
    assert [one.state for one in results] == ["ok", "finding", "finding"]
    assert results[2].what == "no better with NCCL_P2P_DISABLE=1"


def test_second_run_without_a_result_keeps_the_first(model: Path) -> None:
    results = looked(model, document(hung()), "Killed\n")
    assert [one.state for one in results] == ["ok", "finding", "finding"]
    assert results[2].what == "ended without a result, status 0; the last it wrote: Killed"


def test_wrong_sums_name_their_sizes(model: Path) -> None:
    bad = group()
    bad["sums"][1] = {**bad["sums"][1], "right": False}
    results = looked(model, document(bad), document(group()))
    assert results[1].what == "GPU 0, 1, 2, 3: wrong sums of 10,240 bytes" and results[2].state == "hint"


def test_failed_processes(model: Path) -> None:
    bad = group(state="failed", where=["meeting the others"], errors=["process 0: a", "process 1: b"], sums=[], ways={})
    at_start = copies(state="failed", where=["its start"], errors=["process 0: RuntimeError: torch sees 0 GPUs"])
    first, second = looked(model, document(bad, of_copies=at_start))
    assert first.what == "process 0: RuntimeError: torch sees 0 GPUs at its start"
    assert second.what == "GPU 0, 1, 2, 3: process 0: a, and 1 more at meeting the others"
    assert {first.state, second.state} == {"finding"}


def test_each_copy_of_the_model_is_a_group(model: Path) -> None:
    pairs = [group(devices=[0, 1]), hung(devices=[2, 3])]
    second = document(group(devices=[0, 1]), group(devices=[2, 3]))
    results = looked(model, document(*pairs), second, given=("TP=2", "DP=2", "GPUS=3,2,1,0"))
    assert [one.state for one in results] == ["ok", "ok", "finding", "hint"]
    assert results[1].what.startswith("GPU 3, 2: right") and results[2].what.startswith("GPU 1, 0: hung")


@pytest.mark.parametrize(
    "log",
    [
        "",
        "Traceback\nboom\n",
        document(group(devices=[0, 4])),
        document(group(sums=[])),
        document(group(ways={"P2P": "many"})),
        document(group(), of_copies=copies(closed=[[0, 9]])),
        document(group(), of_copies=copies(state="odd")),
        '{"schema": "moet.all-reduce.v1"}',
        "[" * 10_000,
    ],
    ids=range(9),
)
def test_output_that_is_no_document(log: str, model: Path) -> None:
    (result,) = looked(model, log)
    assert result.state == "finding" and result.what.startswith("ended without a result, status 0; the last it wrote: ")
    assert len(result.what) < 400


def test_image_without_torch_is_skipped(model: Path) -> None:
    (result,) = looked(model, document(torch=False))
    assert (result.state, result.what) == ("skipped", "dsv41:vllm0.33.0-r2 has no torch")


def test_left_container_is_removed_and_a_running_one_is_not(model: Path) -> None:
    old = FakeContainer("", polls=0)
    engine = FakeContainers([document(group())], [old])
    made = gpus(model.parent, lambda: engine)
    assert only(all_reduce.check(subject(model), made, FakeDocker(), doing), "all-reduce").state == "ok"
    assert old.removed
    busy = FakeContainer("")
    engine = FakeContainers([], [busy])
    made = gpus(model.parent, lambda: engine)
    (result,) = all_reduce.check(subject(model), made, FakeDocker(), doing)
    assert result.state == "skipped" and "x runs: another preflight's" in result.what and not busy.removed


def test_deadline(model: Path) -> None:
    engine = FakeContainers(["moet: attested\nlast words\n"], polls=10**9)
    with pytest.raises(collective_run.NoResultError, match=r"no end within 0.05 s, .*: last words"):
        collective_run.run(engine, subject(model).launch, 4, 1, seconds=0.05)
    assert engine.made[0][2].removed


def skipped(model: Path, made: Host, *given: str, engine: FakeDocker | None = None) -> str:
    (result,) = all_reduce.check(subject(model, *given), made, engine, doing)
    assert (result.check, result.state) == ("all-reduce", "skipped")
    return result.what


def test_nothing_runs_where_it_cannot_or_should_not(model: Path, tmp_path: Path) -> None:
    engine, there = FakeDocker(), gpus(tmp_path)
    assert "each copy of the model is on one GPU" in skipped(model, there, "TP=1", engine=engine)
    assert skipped(model, there) == "no engine answers"
    assert skipped(model, there, engine=FakeDocker(images=())) == "docker 28.2.2 does not have dsv41:vllm0.33.0-r2"
    used = "GPU-00000002-0000, 4242, /usr/bin/python3\n"
    found = skipped(model, Host(run=smi(tmp_path / "bin", CARDS, used)), engine=engine)
    assert found.endswith("Edition) is in use, and is not disturbed: /usr/bin/python3 (4242)")
    two = Host(run=smi(tmp_path / "bin", card(0) + card(1)))
    assert skipped(model, two, engine=engine) == "nvidia-smi lists no GPU 2"
    full = CARDS.replace("97887, 3,", "97887, 5000,")
    found = skipped(model, Host(run=smi(tmp_path / "bin", full)), engine=engine)
    assert found.endswith("is not disturbed: 4.9 GiB are taken")
    assert skipped(model, Host(run=smi(tmp_path / "bin", "", status=9)), engine=engine) == "nvidia-smi fails"


def test_engine_that_goes_away(model: Path, tmp_path: Path) -> None:
    assert skipped(model, gpus(tmp_path), engine=FakeDocker()) == "no engine answers at x"

    class Refusing(FakeContainers):
        def create(self, launch: Launch, name: str, labels: Mapping[str, str], key: str | None) -> FakeContainer:
            raise EngineError("docker 28 did not create it: could not select device driver")

    made = gpus(tmp_path, lambda: Refusing([]))
    (result,) = all_reduce.check(subject(model), made, FakeDocker(), doing)
    assert result.state == "finding" and "could not select device driver" in result.what


def test_what_nccl_says() -> None:
    assert collective.ways(LOG) == {"P2P/CUMEM": 2, "SHM/direct": 1}
    assert collective.warnings(LOG) == ["no room"]
    assert collective_result.parse(document(group()), 4) is not None
