"""One question over HTTP, held to a time and a size, through no proxy and after no redirect."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests

from serving.probe.api import Api

_CHUNK = 64 << 10


class ProbeError(Exception):
    """A server did not say what it was asked; one line.

    `refused` is set where it answered that it will not, whenever it is asked again.
    """

    def __init__(self, line: str, refused: bool = False) -> None:
        super().__init__(line)
        self.refused = refused


@dataclass(frozen=True)
class Reply:
    """An answer: its status, and its body as text."""

    status: int
    text: str


def ask(
    api: Api, path: str, timeout: float, limit: int, document: Mapping[str, Any] | None = None, key: bool = True
) -> Reply:
    """Asks for a path, or posts a document to it.

    Args:
        api: whose.
        path: begins with a slash.
        timeout: seconds for the whole answer.
        limit: bytes that the answer may have.
        document: sent as JSON; None asks with GET.
        key: whether to send the API key.

    Raises ProbeError where nothing answers, or too slowly, or too much.
    """
    deadline = time.monotonic() + timeout
    with opened(api, path, timeout, document, key) as response:
        body = _body(response, f"{api.base_url}{path}", deadline, limit)
        return Reply(response.status_code, body.decode(errors="replace"))


@contextmanager
def opened(
    api: Api, path: str, timeout: float, document: Mapping[str, Any] | None = None, key: bool = True
) -> Iterator[requests.Response]:
    """Asks as ask() does, and gives the answer to the block with its body unread; `timeout` is for each wait.

    Raises ProbeError where nothing answers, also while the block reads.
    """
    url = f"{api.base_url}{path}"
    headers = {"Authorization": f"Bearer {api.key}"} if key and api.key else {}
    try:
        with requests.Session() as session:
            # A proxy of the environment would see the key, and ~/.netrc replace it.
            session.trust_env = False
            with session.request(
                "GET" if document is None else "POST",
                url,
                json=document,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                yield response
    except (requests.RequestException, OSError) as error:
        raise ProbeError(f"{url}: {_reason(error, timeout)}") from None


def _body(response: requests.Response, url: str, deadline: float, limit: int) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > limit:
            raise ProbeError(f"{url}: answered with more than {limit} bytes")
        if time.monotonic() > deadline:
            raise requests.Timeout
    return bytes(body)


def _reason(error: BaseException, timeout: float) -> str:
    """The innermost cause in few words: those of requests repeat the URL and name objects."""
    if isinstance(error, requests.Timeout):
        return f"no answer in {timeout:g} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke in the middle of the answer"
    while inner := error.__cause__ or error.__context__:
        error = inner
    # A time-out while the body is read is wrapped in a ConnectionError.
    return f"no answer in {timeout:g} s" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
