"""What the stand-in answers to a chat: always the same, found in the prompt, and wrong where it is told to be."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tests.standin.server import made_up, picture, tokens

# "The access code of the mill is 4711." among a hundred thousand other words.
_NEEDLE = re.compile(
    r"\b(?:code|number|key|word|secret|password)\b[^.?!\n]{0,80}? (?:is|was) (?:the )?['\"]?([\w-]+)", re.IGNORECASE
)
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_THOUGHT = 24
DEFAULT_TOKENS = 400


class RefusedError(Exception):
    """A request that is answered with 400; the message says why."""


@dataclass(frozen=True)
class Answer:
    """An answer before it is written: tokens of reasoning, then tokens of content or one tool call."""

    reasoning: Sequence[str]
    content: Sequence[str]
    tool: dict[str, str] | None
    prompt_tokens: int
    finish: str


def chat(body: dict[str, Any], wrong: Sequence[str], refuse: dict[str, Sequence[str]]) -> Answer:
    """The answer to a body of /v1/chat/completions. Raises RefusedError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages: expected a list of messages")
    texts, pictures = list(_texts(messages)), list(_pictures(messages))
    text = "\n".join(texts)
    effort = body.get("reasoning_effort")
    if effort is not None and (effort not in _EFFORTS or effort in refuse.get("reasoning_effort", ())):
        raise RefusedError(f"reasoning_effort: {effort!r}: expected one of {', '.join(_EFFORTS)}")
    said = _said(body, text, pictures, wrong)
    thinks = effort not in (None, "none") and "reasoning" not in wrong
    reasoning = list(islice(tokens.prose("think " + text), _THOUGHT * (1 + _EFFORTS.index(effort)))) if thinks else []
    tool = _tool(body, text, wrong)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_TOKENS
    content = [] if tool else list(islice(said, max(0, limit - len(reasoning))))
    cut = not tool and len(content) + len(reasoning) >= limit
    prompt = sum(tokens.count(one) + 4 for one in texts) + 256 * len(pictures)
    return Answer(reasoning, content, tool, prompt, "length" if cut else "tool_calls" if tool else "stop")


def _texts(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "text":
                yield str(part["text"])


def _pictures(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if part.get("type") == "image_url":
                yield str(part["image_url"]["url"])


def _said(body: dict[str, Any], text: str, pictures: Sequence[str], wrong: Sequence[str]) -> Iterator[str]:
    """The tokens of the content; without end where nothing in particular is asked."""
    form = body.get("response_format") or {}
    if form.get("type") in ("json_object", "json_schema"):
        schema = (form.get("json_schema") or {}).get("schema") or {"properties": {"answer": {"type": "string"}}}
        value = json.dumps(made_up.value(schema, text))
        return iter(tokens.split(value[:-1] if "json" in wrong else value))
    if pictures:
        try:
            seen = " ".join(picture.told(one) for one in pictures)
        except ValueError as error:
            raise RefusedError(f"image_url: {error}") from None
        return iter(tokens.split("I see nothing." if "vision" in wrong else seen))
    if found := _NEEDLE.findall(text):
        return iter(tokens.split("I do not know." if "needle" in wrong else f"It is {found[0]}."))
    return tokens.prose(text)


def _tool(body: dict[str, Any], text: str, wrong: Sequence[str]) -> dict[str, str] | None:
    tools = [one["function"] for one in body.get("tools") or () if one.get("type") == "function"]
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none" or "tool" in wrong:
        return None
    name = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["name"]
    chosen = next((one for one in tools if one["name"] == name), tools[0])
    arguments = made_up.value(chosen.get("parameters") or {}, text)
    return {"name": chosen["name"], "arguments": json.dumps({} if "arguments" in wrong else arguments)}
