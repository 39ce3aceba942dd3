import json
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.engine.errors import EngineError
from serving.containers.state import ContainerState
from serving.probe import attested, ready
from serving.probe.attested import Attested, Step
from serving.probe.fake_server import TOKEN, FakeServer, serving
from serving.runtime import attest, fake_image, report

RUNNING = ContainerState("dsv41", "running", started_at=1000.0)


@dataclass
class Lines(Iterator[str]):
    """Lines of a log that goes on being followed at its end."""

    lines: list[str]
    closed: threading.Event = field(default_factory=threading.Event)

    def __next__(self) -> str:
        if self.lines:
            return self.lines.pop(0)
        assert self.closed.wait(120), "followed for ever"
        raise StopIteration

    def close(self) -> None:
        self.closed.set()


@dataclass
class Fake:
    log: list[str] | None
    status: ContainerState = RUNNING
    attest: tuple[int, str] | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def state(self) -> ContainerState:
        return self.status

    def follow(self, since: float | None = None) -> Lines:
        assert since == 1000.0
        if self.log is None:
            raise EngineError("configured logging driver does not support reading")
        return Lines(list(self.log))

    def run_in(self, command: Sequence[str]) -> tuple[int, str]:
        self.asked.append(tuple(command))
        if self.attest is None:
            raise EngineError("exec: moet-serve: not found")
        return self.attest


@pytest.fixture
def attestation(tmp_path: Path) -> attest.Attestation:
    image = fake_image.make(tmp_path / "root")
    return attest.attest(str(image.root), image.environment, sys.executable)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        fake.answers["/v1/completions"] = (200, TOKEN)
        yield fake


def test_the_entry_points_own_report_is_read(attestation: attest.Attestation) -> None:
    text = report.text(attestation)
    assert attestation.ok and attestation.manifest
    found = attested.attested(f"selftest\n{text}INFO 11-29 api_server: vLLM\nmoet: 7  late  none  -  on\n")
    assert found is not None
    assert (found.tag, found.files) == (attestation.manifest.tag, len(attestation.manifest.files))
    assert attestation.manifest_sha256.startswith(found.manifest)
    assert found.steps == (Step(1, "reasoning-effort-tiers", True), Step(2, "moe-row-alignment", False))
    assert attested.from_json(report.as_json(attestation)) == found


def test_a_mismatch_is_no_report(tmp_path: Path) -> None:
    image = fake_image.make(tmp_path / "root")
    image.path(fake_image.KERNEL).write_bytes(b"other")
    found = attest.attest(str(image.root), image.environment, sys.executable)
    assert found.mismatches
    assert attested.attested(report.text(found)) is None
    assert attested.from_json(report.as_json(found)) is None
    assert attested.from_json(report.cannot_attest_json("why")) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", f'{{"schema": "{report.SCHEMA}", "ok": true, "steps": 3}}'])
def test_what_is_no_report_is_none(text: str) -> None:
    assert attested.from_json(text) is None
    assert attested.attested(text) is None


def test_a_report_far_down_a_log_is_not_the_entry_points(attestation: attest.Attestation) -> None:
    assert attested.attested(["x"] * 200 + report.text(attestation).splitlines()) is None


def test_ready_is_running_attested_and_a_token(server: FakeServer, attestation: attest.Attestation) -> None:
    container = Fake([*report.text(attestation).splitlines(), "INFO vLLM"])
    found = ready.ready(container, server.api, 5)
    assert found.ok and found.canary and found.canary.tokens == 1
    assert isinstance(found.attested, Attested) and not container.asked


@pytest.mark.parametrize("log", [None, [], ["a log that was rotated"]])
def test_without_the_logs_beginning_the_image_is_attested_anew(
    server: FakeServer, attestation: attest.Attestation, log: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "_LOG_SECONDS", 0.05)
    container = Fake(log, attest=(0, report.as_json(attestation)))
    assert ready.ready(container, server.api, 5).ok
    assert container.asked == [("moet-serve", "attest", "--json")]
    container.attest = (3, json.dumps({"schema": report.SCHEMA, "ok": False}))
    assert "not attested" in ready.ready(container, server.api, 5).why
    container.attest = None
    assert "not attested" in ready.ready(container, server.api, 5).why


def test_why_it_is_not_ready(server: FakeServer) -> None:
    dead = Fake([], ContainerState("dsv41", "exited", exit_code=3, started_at=1000.0))
    assert ready.ready(dead, server.api, 5).why == "the container is exited with 3"
    server.answers["/v1/completions"] = (500, b"no")
    assert "status 500: no" in ready.ready(Fake(["x"]), server.api, 5).why


def test_an_engine_that_goes_away_is_told(server: FakeServer) -> None:
    class Gone(Fake):
        def state(self) -> ContainerState:
            if self.asked:
                raise EngineError("no engine answers")
            self.asked.append(())
            return RUNNING

    with pytest.raises(EngineError, match="no engine answers"):
        ready.ready(Gone(None), server.api, 5)
