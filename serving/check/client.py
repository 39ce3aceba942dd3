"""Requests to an OpenAI-compatible server: answers in one piece, or as they come."""

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from images.inspect.text import one_line
from serving.probe.api import Api
from serving.probe.asking import ProbeError, ask, opened
from tools.cli.errors import UserError

_LARGEST = 16 << 20
_WORDS = 300
_OK = 200


class ClientError(Exception):
    """A request that was not answered as it should be; the message is one line."""


class LostError(ClientError):
    """No connection, one that broke, or nothing came for too long."""


class RefusedError(ClientError):
    """The server answered with an error; `status` is HTTP's, 0 for an error within a stream."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"HTTP {status}: {words}" if status else words)
        self.status = status


class GarbledError(ClientError):
    """An answer that cannot be read."""


class Client:
    """A server.

    Args:
        api: where it is. Its key is part of no message.
        patience: seconds that one answer may take, or of a streamed one, the wait for its next part.
    """

    def __init__(self, api: Api, patience: float) -> None:
        self.api = api
        self.patience = patience

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`. Raises ClientError."""
        return self._answer(path, None)

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, whole. Raises ClientError."""
        return self._answer(path, body)

    def events(self, path: str, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        """The parts of a streamed answer, each with when it came (time.monotonic()).

        Raises ClientError; an answer that ends before its end is a LostError.
        """
        try:
            with opened(self.api, path, self.patience, {**body, "stream": True}) as response:
                if response.status_code != _OK:
                    text = b"".join(response.iter_content(1 << 16))[:_LARGEST].decode(errors="replace")
                    raise RefusedError(response.status_code, self._words(text))
                size = 0
                # Given a size, urllib3 would wait for that many bytes.
                for line in response.iter_lines(chunk_size=None):
                    now = time.monotonic()
                    size += len(line)
                    if size > _LARGEST:
                        raise GarbledError(f"an answer of more than {_LARGEST >> 20} MiB")
                    if not line.startswith(b"data:"):
                        continue
                    data = line.removeprefix(b"data:").strip().decode(errors="replace")
                    if data == "[DONE]":
                        return
                    part = self._object(data)
                    if part.get("error"):
                        raise RefusedError(0, self._words(data))
                    yield now, part
        except ProbeError as error:
            raise LostError(self.clean(str(error))) from None
        raise LostError("the answer broke off before its end")

    def clean(self, text: str, limit: int = _WORDS) -> str:
        """What a server said, on one line, fit for a terminal, and without the API key."""
        key = self.api.key
        return one_line(text.replace(key, "<API key>") if key else text, limit)

    def _answer(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        try:
            reply = ask(self.api, path, self.patience, _LARGEST, body)
        except ProbeError as error:
            raise LostError(self.clean(str(error))) from None
        if reply.status != _OK:
            raise RefusedError(reply.status, self._words(reply.text))
        return self._object(reply.text)

    def _object(self, text: str) -> dict[str, Any]:
        value = _json(text)
        if not isinstance(value, dict):
            raise GarbledError(f"expected a JSON object, found {self.clean(text, 80)!r}")
        return value

    def _words(self, text: str) -> str:
        """The message in an error's body: {"error": {"message": ...}}, {"error": ...} or {"detail": ...}."""
        value = _json(text)
        if isinstance(value, dict):
            found = value.get("error") or value.get("detail") or value.get("message") or text
            found = found.get("message", found) if isinstance(found, dict) else found
            text = found if isinstance(found, str) else json.dumps(found)
        return self.clean(text) or "no word"


def base_url(url: str) -> str:
    """A URL without `/v1` and slashes at its end. Raises UserError where it is none of http or https."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(char.isspace() or not char.isprintable() for char in url):
        raise UserError(f"{one_line(url)!r}: expected a server's URL, for example http://127.0.0.1:8001")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError("the URL has more than scheme, host, port and path: an API key belongs into VLLM_API_KEY")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
