"""Answers that are nearly right: from a server that says whatever a test has it say."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serving.check import answers, effort, vision
from serving.check.client import Client, RefusedError
from serving.check.published import Line, load
from serving.check.result import Result
from serving.check.subject import Sizes, Subject
from serving.check.talk import CHAT, Model
from serving.check.target import by_url
from serving.probe.fake_server import FakeServer, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        yield fake


def subject(server: FakeServer, line: Line | None = None) -> Subject:
    target = by_url(server.api.base_url, "m", None, {})
    return Subject(target, Client(server.api, 5), Model("m", None, {}), line, None, Sizes())


def said(message: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps({"choices": [{"message": message}]}).encode()


def calls(*named: tuple[str, str]) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": name, "arguments": text}} for name, text in named]}


RIGHT = json.dumps(answers.ARGUMENTS)


@pytest.mark.parametrize(
    ("message", "state", "says"),
    [
        (calls(("set_fan", RIGHT)), "pass", "set_fan was called"),
        (calls(("set_fan", json.dumps({**answers.ARGUMENTS, "percent": 45.0}))), "pass", "set_fan was called"),
        (calls(("set_fan", json.dumps({**answers.ARGUMENTS, "percent": "45"}))), "fail", '"percent": "45"'),
        (calls(("set_fan", json.dumps({**answers.ARGUMENTS, "more": 1}))), "fail", '"more": 1'),
        (calls(("set_fan", json.dumps({**answers.ARGUMENTS, "zones": "rear"}))), "fail", '"zones": "rear"'),
        (calls(("set_fan", RIGHT[:-1])), "fail", "expected JSON, found"),
        (calls(("set_fan", "")), "fail", "found 'nothing'"),
        (calls(("fan", RIGHT)), "fail", "expected one call of set_fan, found fan"),
        (calls(("set_fan", RIGHT), ("set_fan", RIGHT)), "fail", "found set_fan, set_fan"),
        ({"content": f"<call>{RIGHT}"}, "fail", "answered <call>"),
        ({"content": None}, "fail", "answered nothing"),
    ],
)
def test_tool_calls(server: FakeServer, message: dict[str, Any], state: str, says: str) -> None:
    server.answers[CHAT] = said(message)
    found = answers.tool_call(subject(server), streamed=False)
    assert (found.check, found.state) == ("tool call", state) and says in found.what


def streamed(*deltas: object) -> tuple[int, bytes]:
    parts = [json.dumps({"choices": [{"delta": {"tool_calls": [delta]}}]}) for delta in deltas]
    return 200, "".join(f"data: {part}\n\n" for part in (*parts, "[DONE]")).encode()


@pytest.mark.parametrize(
    ("deltas", "state", "says"),
    [
        (
            [
                {"index": 0, "function": {"name": "set_fan"}},
                {"index": 0, "function": {"arguments": RIGHT[:9]}},
                {"index": 0, "function": {"arguments": RIGHT[9:]}},
            ],
            "pass",
            "set_fan was called",
        ),
        ([{"index": 0, "function": {"name": "set_fan", "arguments": RIGHT[9:]}}], "fail", "expected JSON"),
        # The parts of one call as several: a parser that counts wrongly.
        ([{"index": n, "function": {"name": f"set_{n}", "arguments": RIGHT}} for n in (0, 1)], "fail", "set_0, set_1"),
        ([], "fail", "expected one call of set_fan, found nothing"),
    ],
)
def test_streamed_tool_calls(server: FakeServer, deltas: list[object], state: str, says: str) -> None:
    server.answers[CHAT] = streamed(*deltas)
    found = answers.tool_call(subject(server), streamed=True)
    assert (found.check, found.state) == ("tool call, streamed", state) and says in found.what


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (json.dumps(answers.VALUE), "pass"),
        (json.dumps({**answers.VALUE, "bridges": 13}), "fail"),
        (json.dumps({**answers.VALUE, "tower": {"open": 1, "colours": ["green"]}}), "fail"),
        (f"```json\n{json.dumps(answers.VALUE)}\n```", "fail"),
        ("", "fail"),
    ],
)
def test_json(server: FakeServer, text: str, state: str) -> None:
    server.answers[CHAT] = said({"content": text})
    assert answers.json_answer(subject(server)).state == state
    asked = json.loads(server.asked[0][2])
    assert asked["response_format"]["json_schema"]["schema"] == answers.SCHEMA


def look(server: FakeServer) -> Result:
    return vision.vision(subject(server))


def test_vision(server: FakeServer) -> None:
    server.answers[CHAT] = said({"content": "I see nothing\x1b[2J"})
    wrong = look(server)
    assert wrong.state == "fail" and wrong.what.endswith("answered I see nothing\\x1b[2J")
    right = wrong.what.removeprefix("expected ").partition(", answered")[0]
    number, colour = right.split(", ")
    for answer, state in ((right, "pass"), (f"It is {colour.upper()}: {number}.", "pass"), (number, "fail")):
        server.answers[CHAT] = said({"content": answer})
        assert look(server).state == state
    server.answers[CHAT] = said({"content": f"{number}0, {colour}"})
    assert look(server).state == "fail"


def test_a_server_without_vision_is_skipped_and_one_that_refuses_is_not(server: FakeServer) -> None:
    server.answers[CHAT] = (400, b'{"error": {"message": "At most 0 image(s) may be provided in one prompt."}}')
    found = look(server)
    assert found.state == "skipped" and "At most 0 image(s)" in found.what
    server.answers[CHAT] = (400, b'{"error": {"message": "cannot identify image file"}}')
    with pytest.raises(RefusedError, match="cannot identify image"):
        look(server)


def test_efforts_that_are_one_and_the_same(server: FakeServer) -> None:
    line = load()["dsv41"]
    server.answers[CHAT] = (200, b'{"prompt_text": "effort 75"}')
    found = effort.effort(subject(server, line))
    assert found.state == "fail"
    assert "the same prompt for none and minimal and low and medium and high and xhigh and max" in found.what
    names = [json.loads(body)["reasoning_effort"] for _, _, body in server.asked]
    assert names == ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    assert effort.effort(subject(server)).state == "skipped"
