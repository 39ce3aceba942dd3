"""Chat requests, one or many at a time, with the times of their tokens."""

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.check.client import Client, ClientError, GarbledError
from serving.check.timing import Timing

CHAT = "/v1/chat/completions"
_SEED = 20260911


@dataclass(frozen=True)
class Model:
    """A served model.

    Attributes:
        name: as requests have it.
        longest: tokens of prompt and answer together; None where the server does not say.
        plain: what a request needs for an answer without reasoning first; nothing where that is not known.
    """

    name: str
    longest: int | None
    plain: Mapping[str, Any]


def salt() -> str:
    """Something new: requests with the same salt, and no others, share what the server keeps of their prompts."""
    return uuid.uuid4().hex


def request(model: Model, content: str | list[dict[str, Any]], most: int, **more: Any) -> dict[str, Any]:
    """A chat request of one message: at most `most` tokens, the likeliest each time, no reasoning first."""
    return {
        "model": model.name,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": most,
        "temperature": 0,
        "seed": _SEED,
        **model.plain,
        **more,
    }


def message(answer: dict[str, Any]) -> dict[str, Any]:
    """The message of a whole answer. Raises GarbledError."""
    try:
        found = answer["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise GarbledError("expected an answer with choices[0].message")
    return found


def text(answer: dict[str, Any]) -> str:
    """The text of a whole answer, without its reasoning. Raises GarbledError."""
    return str(message(answer).get("content") or "")


def stream(client: Client, body: dict[str, Any], stop: threading.Event | None = None) -> Timing:
    """Sends a request and takes its answer as it comes.

    Raises ClientError, also for an answer without tokens.
    """
    options = {"include_usage": True, "continuous_usage_stats": True}
    sent = time.monotonic()
    times, counts, words = list[float](), list[int](), list[str]()
    prompt = total = 0
    ended = ""
    for now, part in client.events(CHAT, {**body, "stream_options": options}):
        if stop and stop.is_set():
            break
        usage = part.get("usage")
        counted = _count(usage, "completion_tokens")
        prompt, total = _count(usage, "prompt_tokens") or prompt, counted or total
        choices = part.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            continue
        ended = str(choices[0].get("finish_reason") or ended)
        new, written = _written(choices[0].get("delta"))
        words.append(written)
        if counted > (counts[-1] if counts else 0) or (not counted and new):
            times.append(now)
            counts.append(counted)
    if not times or not total:
        raise GarbledError("an answer without tokens, or without usage.completion_tokens")
    if 0 in counts:
        # A server that says no more than the sum: each part has as many as any other.
        counts = [total * (number + 1) // len(times) for number in range(len(times))]
    return Timing(sent, tuple(times), tuple(counts), prompt, "".join(words), ended)


def streams(client: Client, bodies: Sequence[dict[str, Any]]) -> list[Timing]:
    """Sends requests at the same time and takes all answers. Raises ClientError: the first stream's that failed."""
    done: list[Timing | ClientError | None] = [None] * len(bodies)
    stop = threading.Event()

    def run(number: int) -> None:
        try:
            done[number] = stream(client, bodies[number], stop)
        except ClientError as error:
            done[number] = error

    # Daemons: whoever presses Ctrl-C does not wait for answers.
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(bodies))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
    timings = []
    for one in done:
        if isinstance(one, ClientError):
            raise one
        assert one is not None
        timings.append(one)
    return timings


def _written(delta: Any) -> tuple[bool, str]:
    """Whether a part has something new of any kind, and its text."""
    if not isinstance(delta, dict):
        return False, ""
    content = delta.get("content")
    new = bool(content or delta.get("reasoning") or delta.get("reasoning_content") or delta.get("tool_calls"))
    return new, content if isinstance(content, str) else ""


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0
