"""The verb against the stand-in server, right and wrong."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.check import cards, talk, target
from serving.check.client import Client
from serving.check.standin import MODEL, Standin, standin
from serving.check.talk import Model
from serving.probe.api import Api
from tests.release.toy import moet

SMALL = ("--tokens=64", "--prompt-tokens=500", "--streams=3", "--needle=1000,100000")
KEY = "s3cret-key"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standin]:
    with standin(tmp_path_factory.mktemp("standin") / "model") as started:
        yield started


@pytest.fixture
def told(server: Standin) -> Iterator[Standin]:
    """The server, which behaves afterwards."""
    yield server
    server.behave()


def check(server: Standin, *words: str, status: int = 0) -> dict[str, dict[str, Any]]:
    found, out, err = moet("serve", "check", server.url, *SMALL, *words, "--json")
    assert found == status, (out, err)
    document = json.loads(out)
    assert document["schema"] == "moet.serve-check.v1" and document["model"] == MODEL
    return {one["check"]: one for one in document["checks"]}


def states(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["state"] for name, one in found.items()}


def test_all_of_a_server_that_is_right(told: Standin) -> None:
    # Long enough for streams to be side by side, also on a machine that is busy.
    told.behave(tokens_per_second=250)
    status, out, err = moet("serve", "check", f"{told.url}/v1", *SMALL, "--tokens=256")
    assert status == 0, out
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    states = {name: line.split()[0] for line in lines[:-1] for name in [line[9:].partition(":")[0]]}
    speed = [f"decode {kind} x{count}" for count in (1, 3) for kind in ("prose", "code")] + ["prompt x1", "prompt x3"]
    # Whether a figure is low is a matter of the machine.
    assert {states.pop(name) for name in speed} <= {"pass", "low"}
    skipped = [f"needle 100,000 at {depth} %" for depth in (10, 50, 90)]
    assert states == {
        **dict.fromkeys(("server", "warm-up"), "pass"),
        **{f"needle 1,000 at {depth} %": "pass" for depth in (10, 50, 90)},
        **dict.fromkeys(skipped, "skipped"),
        **dict.fromkeys(("tool call", "tool call, streamed", "JSON", "vision", "reasoning effort"), "pass"),
    }
    assert lines[-1].endswith(", 0 fail, 3 skipped")
    # The stand-in accepts 2 and 4 of 5 drafted tokens in turn: 4 tokens a step.
    assert "(4.00 tokens a step)" in out and "image not known: " in out
    assert "% of what others published: 293 tokens/s of vLLM-Moet's dsv41 r26b" in out
    assert "1 of 18: warm-up" in err and "wiki's public pages" in err


def test_figures_follow_from_each_other(server: Standin) -> None:
    found = check(server, "--only=decode")
    assert set(found) == {"server", "warm-up", *(f"decode {kind} x{n}" for n in (1, 3) for kind in ("prose", "code"))}
    figures = {one["name"]: one["value"] for one in found["decode prose x1"]["figures"]}
    assert figures["decode"] == pytest.approx(4 * figures["steps"], rel=0.15)
    assert figures["between parts, median"] <= figures["between parts, p99"]


@pytest.mark.parametrize(
    ("wrong", "group", "failed"),
    [
        ("needle", "needle", {f"needle 1,000 at {depth} %" for depth in (10, 50, 90)}),
        ("json", "json", {"JSON"}),
        ("tool", "tools", {"tool call", "tool call, streamed"}),
        ("arguments", "tools", {"tool call", "tool call, streamed"}),
        ("vision", "vision", {"vision"}),
        ("usage", "decode", {"warm-up", *(f"decode {kind} x{n}" for n in (1, 3) for kind in ("prose", "code"))}),
    ],
)
def test_wrong_answers_fail_and_no_others(told: Standin, wrong: str, group: str, failed: set[str]) -> None:
    told.behave(wrong=[wrong])
    found = check(told, f"--only={group}", status=1)
    assert {name for name, state in states(found).items() if state == "fail"} == failed
    assert all(one["what"] and "\n" not in one["what"] for one in found.values())


def test_efforts_that_are_refused_are_named(told: Standin) -> None:
    told.behave(refuse={"reasoning_effort": ["minimal", "medium"]})
    one = check(told, "--only=effort", status=1)["reasoning effort"]
    assert one["what"].startswith("refused: minimal, medium (minimal: HTTP 400: reasoning_effort: 'minimal'")
    assert "VLLM_MOET_REASONING_TIERS" in one["advice"][0]


def test_slow_is_low_with_what_is_usual_and_no_failure(told: Standin) -> None:
    told.behave(tokens_per_second=200, prompt_tokens_per_second=5000)
    found = check(told, "--only=decode", "--only=prompt", "--streams=1")
    assert states(found) == {
        **dict.fromkeys(("server", "warm-up"), "pass"),
        **dict.fromkeys(("decode prose x1", "decode code x1", "prompt x1"), "low"),
    }
    slow = found["decode prose x1"]
    assert "of what others published" in slow["beside"][0]
    assert any("NCCL_P2P_LEVEL" in line for line in slow["advice"])
    assert not any("speculation" in line for line in found["prompt x1"]["advice"])


def test_what_the_cards_do_meanwhile_is_said(told: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = "0, NVIDIA H200, 0x0000000000000020, 97, 88, 700.00, 700.00, 16, 16, 5, 5"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{row}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(cards, "_FIRST_SECONDS", 0.01)
    told.behave(tokens_per_second=50)
    advice = check(told, "--only=decode", "--streams=1")["decode prose x1"]["advice"]
    assert "card 0: its clocks were held back by heat (88 C): more air, or a lower power limit" in advice
    assert advice[-1] == "this host has other cards: 1x NVIDIA H200"


def test_a_server_that_others_use(told: Standin) -> None:
    told.behave(tokens_per_second=200)
    client = Client(Api(told.url, MODEL), 60)
    body = talk.request(Model(MODEL, None, {}), "x", 12_000)
    started = threading.Event()

    def use() -> None:
        for _ in client.events(talk.CHAT, body):
            started.set()
            if done.is_set():
                break

    done = threading.Event()
    other = threading.Thread(target=use)
    other.start()
    try:
        assert started.wait(120)
        found = check(told, "--only=decode", "--streams=1")["decode prose x1"]
    finally:
        done.set()
        other.join()
    assert "at least, by parts of answers: others use the server" in found["what"]
    assert "tokens were generated for others meanwhile" in found["advice"][0]


def test_steps_without_counters_are_parts_of_answers(told: Standin) -> None:
    told.behave(metrics=False)
    found = check(told, "--only=decode")["decode prose x1"]
    assert "at least, by parts of answers: no counters in /metrics" in found["what"]
    figures = {one["name"]: one["value"] for one in found["figures"]}
    assert figures["decode"] == pytest.approx(4 * figures["steps"], rel=0.15)


def test_a_key_is_needed_taken_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standin(tmp_path / "model", key=KEY) as server:
        status, out, err = moet("serve", "check", server.url, *SMALL)
        assert status == 1 and "fail     server: HTTP 401: Unauthorized\n         the API key: --key-file" in out
        file = tmp_path / "key"
        file.write_text(f"VLLM_API_KEY={KEY}\n")
        file.chmod(0o600)
        status, out, err = moet("serve", "check", server.url, *SMALL, "--key-file", str(file))
        assert status == 0 and KEY not in out + err
        monkeypatch.setenv("VLLM_API_KEY", KEY)
        assert states(check(server, "--only=json"))["JSON"] == "pass"


def test_the_environment_s_key_is_for_this_host_alone() -> None:
    given = {"VLLM_API_KEY": KEY}
    assert target.by_url("http://192.0.2.1:1", None, None, given).api.key is None
    for local in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"):
        assert target.by_url(local, None, None, given).api.key == KEY


def test_a_server_that_dies_is_not_asked_on(tmp_path: Path) -> None:
    with standin(tmp_path / "model", crash_after_requests=5) as server:
        found = check(server, status=1)
    # Four to warm up, one decoded; the next one kills it.
    assert [name for name, state in states(found).items() if state == "fail"] == ["decode code x1"]
    rest = [one for one in found.values() if one["state"] == "skipped"]
    assert len(rest) == 15 and all("gives no token any more" in one["what"] for one in rest)


def test_a_server_that_hangs_is_not_waited_for_twice(tmp_path: Path) -> None:
    with standin(tmp_path / "model", hang_after_requests=5) as server:
        found = check(server, "--patience=6", status=1)
    assert "no answer in 6 s" in found["decode code x1"]["what"]
    assert states(found)["decode prose x3"] == "skipped"


def test_nobody_there() -> None:
    status, out, _ = moet("serve", "check", "http://127.0.0.1:1")
    assert status == 1
    assert out.splitlines()[0].startswith("fail     server: http://127.0.0.1:1/v1/models: ") and "refused" in out
    assert out.splitlines()[-1] == "0 pass, 0 low, 1 fail, 0 skipped"


def test_another_model_than_is_served(server: Standin) -> None:
    status, out, _ = moet("serve", "check", server.url, "--model=other")
    assert status == 1 and f"it serves {MODEL}, not other: --model says which" in out


def test_a_model_of_no_line_is_compared_with_nothing(tmp_path: Path) -> None:
    with standin(tmp_path / "model", "--served-model-name=else", tokens_per_second=500) as server:
        words = ("serve", "check", server.url, *SMALL, "--only=decode", "--only=effort")
        status, out, _ = moet(*words)
        assert status == 0 and "published" not in out and "skipped  reasoning effort: which names" in out
        assert "of what others published: 129 steps/s" in moet(*words, "--line=dsv41")[1]


def test_interrupted_it_tells_what_it_found(told: Standin) -> None:
    told.behave(tokens_per_second=20)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "tools.moet.main", "serve", "check", told.url, "--only=decode", "--json"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        for line in running.stderr:
            if line.startswith("1 of "):
                running.send_signal(signal.SIGINT)
                break
        out, err = running.communicate(timeout=300)
    assert running.returncode == 130 and err.splitlines()[-1] == "moet serve check: interrupted"
    document = json.loads(out)
    assert document["partial"] is True
    assert [(one["check"], one["state"]) for one in document["checks"]] == [("server", "pass")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["127.0.0.1:8001"], "'127.0.0.1:8001': expected a server's URL"),
        ([], "no server was started here yet"),
        (["--server=dsv41"], "no server 'dsv41' was started here"),
        (["--server=dsv41", "--model=m"], "--model goes with a URL"),
        (["http://192.0.2.1:1", "--receipt=docs/evidence/x.json"], "is not this host, whose hardware a receipt states"),
    ],
)
def test_wrong_requests_are_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    (tmp_path / "bazelw").touch()
    (tmp_path / "images").mkdir()
    monkeypatch.chdir(tmp_path)
    status, out, err = moet("serve", "check", *words)
    assert (status, out) == (1, "") and err.startswith("moet serve check: ") and err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize("words", ["--tokens=63", "--needle=1,x", "--streams=257", "--only=all", "http://a --server=b"])
def test_wrong_usage(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        moet("serve", "check", *words.split())
    assert ended.value.code == 2
