"""What a running server is asked: /health, and for one token.

vllm 0.33.0: /health is 200 as long as the engine's process has not been found dead (entrypoints/serve/instrumentator/
health.py, v1/engine/async_llm.py:1129); it says nothing of an engine that hangs. Only a token does.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from serving.probe.api import Api
from serving.probe.asking import ProbeError, ask

_SMALL = 1 << 20
_SHOWN = 200
# Refusals of the moment: time-out, too many requests.
_LATER = {408, 429}


@dataclass(frozen=True)
class Canary:
    """A completion that was answered: after how many seconds, and with how many tokens."""

    seconds: float
    tokens: int


def health(api: Api, timeout: float) -> bool:
    """Whether /health is answered with 200 in `timeout` seconds. It needs no key."""
    try:
        return ask(api, "/health", timeout, _SMALL, key=False).status == 200
    except ProbeError:
        return False


def canary(api: Api, timeout: float) -> Canary:
    """Has one token computed; raises ProbeError where it does not come in `timeout` seconds.

    The prompt is shorter than any block of the KV cache, so that the engine must compute it each time.
    """
    asked: dict[str, Any] = {"prompt": "1", "max_tokens": 1, "min_tokens": 1, "temperature": 0}
    if api.model:
        asked["model"] = api.model
    begin = time.monotonic()
    answer = _json(api, "/v1/completions", timeout, asked)
    seconds = time.monotonic() - begin
    usage = answer.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if type(tokens) is not int or tokens < 1:
        raise ProbeError(f"{api.base_url}/v1/completions: answered without a token: {_cut(json.dumps(answer))}")
    return Canary(seconds, tokens)


def _json(api: Api, path: str, timeout: float, document: dict[str, Any]) -> dict[str, Any]:
    """The JSON object that is answered with 200."""
    reply = ask(api, path, timeout, _SMALL, document)
    where = f"{api.base_url}{path}"
    if reply.status == 401:
        need = "the server does not take the API key" if api.key else "the server wants an API key"
        raise ProbeError(f"{where}: {need} (status 401)", refused=True)
    if reply.status != 200:
        refused = 400 <= reply.status < 500 and reply.status not in _LATER
        raise ProbeError(f"{where}: status {reply.status}: {_cut(reply.text)}", refused)
    try:
        answer = json.loads(reply.text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ProbeError(f"{where}: expected a JSON object, found {_cut(reply.text)}")
    return answer


def _cut(text: str) -> str:
    """The beginning of what a server said, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
