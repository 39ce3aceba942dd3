"""Answers that programs read: tool calls and JSON by a schema. Each has one right value, which the question gives."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from serving.check import talk
from serving.check.client import GarbledError
from serving.check.result import Check, Result
from serving.check.subject import Subject

_MOST = 512
_CALL, _STREAMED, _JSON = "tool call", "tool call, streamed", "JSON"
_PARSER = ("--enable-auto-tool-choice and --tool-call-parser must fit the model: the profile has them",)
_GRAMMAR = ("structured outputs bind the answer to the schema: the server's log says why they did not",)

FUNCTION = "set_fan"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rack": {"type": "string", "description": "the rack's name"},
        "percent": {"type": "integer", "minimum": 0, "maximum": 100, "description": "speed of the fans"},
        "zones": {"type": "array", "items": {"type": "string", "enum": ["front", "rear", "top"]}},
    },
    "required": ["rack", "percent", "zones"],
    "additionalProperties": False,
}
ARGUMENTS = {"rack": "Alder", "percent": 45, "zones": ["rear"]}
_TOOL = {
    "type": "function",
    "function": {"name": FUNCTION, "description": "Sets the fans of a rack.", "parameters": PARAMETERS},
}
_TOOL_QUESTION = "Please set the fans of the rack named Alder to 45 percent, in the rear zone alone. Use the tool."

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "bridges": {"type": "integer"},
        "tower": {
            "type": "object",
            "properties": {
                "open": {"type": "boolean"},
                "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "green", "blue"]}},
            },
            "required": ["open", "colours"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "bridges", "tower"],
    "additionalProperties": False,
}
VALUE = {"city": "Tarnholm", "bridges": 12, "tower": {"open": True, "colours": ["green"]}}
_JSON_QUESTION = (
    "There is a city, Tarnholm, with 12 bridges over two rivers. Its old tower is open to visitors, and wholly green. "
    "Answer with these facts as JSON: the city's name, its number of bridges, whether the tower is open, its colours."
)


def tool_call(subject: Subject, streamed: bool) -> Result:
    """Asks for a tool call whose arguments the question says. Raises ClientError."""
    name = _STREAMED if streamed else _CALL
    body = talk.request(subject.model, _TOOL_QUESTION, _MOST, tools=[_TOOL], tool_choice="auto")
    if streamed:
        calls = _streamed_calls(subject, body)
    else:
        answer = talk.message(subject.client.ask(talk.CHAT, body))
        calls = [_call(one) for one in answer.get("tool_calls") or []]
        if not calls:
            said = subject.client.clean(str(answer.get("content") or "nothing"), 80)
            return Result(name, "fail", f"expected a call of {FUNCTION}, answered {said}", _PARSER)
    if len(calls) != 1 or calls[0][0] != FUNCTION:
        called = subject.client.clean(", ".join(call[0] for call in calls), 80) or "nothing"
        return Result(name, "fail", f"expected one call of {FUNCTION}, found {called}", _PARSER)
    return _held(subject, name, calls[0][1], ARGUMENTS, f"{FUNCTION} was called with the arguments asked for", _PARSER)


def json_answer(subject: Subject) -> Result:
    """Asks for JSON by a schema whose values the question says. Raises ClientError."""
    form = {"type": "json_schema", "json_schema": {"name": "facts", "schema": SCHEMA, "strict": True}}
    body = talk.request(subject.model, _JSON_QUESTION, _MOST, response_format=form)
    text = talk.text(subject.client.ask(talk.CHAT, body))
    return _held(subject, _JSON, text, VALUE, "by the schema, with the values asked for", _GRAMMAR)


def checks(subject: Subject, groups: Sequence[str]) -> Iterator[Check]:
    """The checks of the groups "tools" and "json"."""
    if "tools" in groups:
        yield Check(_CALL, partial(tool_call, subject, False))
        yield Check(_STREAMED, partial(tool_call, subject, True))
    if "json" in groups:
        yield Check(_JSON, partial(json_answer, subject))


def _held(
    subject: Subject, name: str, text: str, expected: object, fits: str, advice: tuple[str, ...]
) -> Result:
    """Holds JSON text against the one right value."""
    clean = subject.client.clean
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Result(name, "fail", f"expected JSON, found {clean(text, 80) or 'nothing'!r}", advice)
    if not _same(value, expected):
        what = f"expected {json.dumps(expected)}, found {clean(json.dumps(value), 160)}"
        return Result(name, "fail", what, advice)
    return Result(name, "pass", fits)


def _same(one: object, other: object) -> bool:
    """Equality of JSON values, for which true is not 1 and 1.0 is 1."""
    return json.dumps(_numbers(one), sort_keys=True) == json.dumps(_numbers(other), sort_keys=True)


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _call(call: Any) -> tuple[str, str]:
    """Name and arguments of a tool call. Raises GarbledError."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise GarbledError("expected tool_calls with a function")
    return str(function.get("name") or ""), str(function.get("arguments") or "")


def _streamed_calls(subject: Subject, body: dict[str, Any]) -> list[tuple[str, str]]:
    """The calls of a streamed answer, put together by their index. Raises ClientError."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for _, part in subject.client.events(talk.CHAT, body):
        choices = part.get("choices")
        delta = choices[0].get("delta") if isinstance(choices, list) and choices else None
        for call in (delta.get("tool_calls") or []) if isinstance(delta, dict) else []:
            index = call.get("index") if isinstance(call, dict) else None
            if not isinstance(index, int):
                raise GarbledError("expected tool_calls with an index")
            name, text = _call(call)
            names[index] = names.get(index, "") + name
            arguments[index] = arguments.get(index, "") + text
    return [(names[index], arguments[index]) for index in sorted(names)]
