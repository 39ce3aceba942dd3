from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from serving.check import talk
from serving.check.client import Client, ClientError, GarbledError, LostError, RefusedError, base_url
from serving.check.talk import CHAT, Model
from serving.probe.api import Api
from serving.probe.fake_server import serving
from tools.cli.errors import UserError

KEY = "s3cret-key"
MODEL = Model("m", None, {})


@contextmanager
def server(answer: bytes) -> Iterator[Client]:
    """Sends the same bytes, head and all, after every request, and closes the connection."""

    def say(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer)

    with serving(KEY) as fake:
        fake.answers = {"/x": say, CHAT: say}
        yield Client(fake.api, 60)


def whole(body: str, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\n{more}\r\n{body}".encode()


def events(*parts: str, ended: bool = True) -> bytes:
    chunks = [f"data: {part}\n\n" for part in parts]
    body = "".join(f"{len(chunk.encode()):x}\r\n{chunk}\r\n" for chunk in chunks) + ("0\r\n\r\n" if ended else "")
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}".encode()


def part(content: str, count: int | None = None) -> str:
    usage = f', "usage": {{"prompt_tokens": 5, "completion_tokens": {count}}}' if count is not None else ""
    return f'{{"choices": [{{"delta": {{"content": "{content}"}}}}]{usage}}}'


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (whole('{"error": {"message": "no\\nsuch", "code": 404}}', "404 Not Found"), RefusedError, "HTTP 404: no such"),
        (whole('{"error": "Unauthorized"}', "401 Unauthorized"), RefusedError, "HTTP 401: Unauthorized"),
        (whole('{"detail": [{"loc": "x"}]}', "422 No"), RefusedError, 'HTTP 422: [{"loc": "x"}]'),
        (whole("", "500 No"), RefusedError, "HTTP 500: no word"),
        (whole(f"you sent {KEY}", "400 No"), RefusedError, "HTTP 400: you sent <API key>"),
        (whole("\x1b[31m", "400 No"), RefusedError, "HTTP 400: \\x1b[31m"),
        (whole("", "302 Found", "Location: http://127.0.0.1:1/\r\n"), RefusedError, "HTTP 302: no word"),
        (whole("<html>"), GarbledError, "expected a JSON object, found '<html>'"),
        (whole("[" * 100000), GarbledError, "expected a JSON object"),
        (b"", LostError, "/x: "),
        (b"no HTTP\r\n\r\n", LostError, "/x: "),
    ],
)
def test_what_goes_wrong_is_one_line(answer: bytes, kind: type[ClientError], said: str) -> None:
    with server(answer) as client, pytest.raises(kind) as raised:
        client.ask("/x", {})
    assert said in str(raised.value) and "\n" not in str(raised.value) and KEY not in str(raised.value)


def test_a_server_that_is_not_there() -> None:
    with server(b"") as client:
        pass
    with pytest.raises(LostError, match="refused"):
        client.get("/x")


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (events(part("a", 1), ended=False), LostError, "broke in the middle of the answer"),
        (events(part("a", 1)), LostError, "broke off before its end"),
        (events(part("a", 1), '{"error": {"message": "engine dead"}}'), RefusedError, "engine dead"),
        (events(part("a", 1), "{"), GarbledError, "expected a JSON object, found '{'"),
        (events("[DONE]"), GarbledError, "without tokens"),
        (events(part("a"), "[DONE]"), GarbledError, "without usage.completion_tokens"),
        (whole('{"error": "busy"}', "503 Busy"), RefusedError, "HTTP 503: busy"),
    ],
)
def test_streams_that_go_wrong(answer: bytes, kind: type[ClientError], said: str) -> None:
    with server(answer) as client, pytest.raises(kind) as raised:
        talk.stream(client, talk.request(MODEL, "x", 9))
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_tokens_are_counted_as_the_server_says() -> None:
    parts = [part("", 0), part("a", 3), part("", 3), part("b", 7), '{"choices": [], "usage": {"completion_tokens": 7}}']
    with server(events(*parts, "[DONE]")) as client:
        found = talk.stream(client, talk.request(MODEL, "x", 9))
    # The part with the role alone, and the one without a new token, are no steps.
    assert (found.tokens, found.text, found.prompt_tokens) == ((3, 7), "ab", 5)


def test_without_counts_of_parts_the_sum_is_spread() -> None:
    last = '{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}'
    with server(events(part("a"), part("b"), part("c"), last, "[DONE]")) as client:
        assert talk.stream(client, talk.request(MODEL, "x", 9)).tokens == (3, 6, 9)


def test_one_stream_that_fails_is_the_failure_of_all() -> None:
    with server(whole('{"error": "busy"}', "503 Busy")) as client, pytest.raises(RefusedError, match="busy"):
        talk.streams(client, [talk.request(MODEL, "x", 9)] * 3)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("https://host/v1/", "https://host"),
        ("http://[::1]:8001/models/v1", "http://[::1]:8001/models"),
    ],
)
def test_urls(url: str, base: str) -> None:
    assert base_url(url) == base


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8001", "ftp://a", "http://", "http://a:b", "http://[::1", "http://a b", "http://a\x1b", "dsv41"]
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UserError, match="expected a server's URL") as raised:
        base_url(url)
    assert str(raised.value).isprintable()


def test_a_key_in_a_url_is_refused_and_not_repeated() -> None:
    for url in (f"http://user:{KEY}@host", f"http://host/?key={KEY}"):
        with pytest.raises(UserError, match="more than scheme") as raised:
            base_url(url)
        assert KEY not in str(raised.value)


def test_the_key_is_no_part_of_a_client_s_words() -> None:
    assert KEY not in repr(Api("http://127.0.0.1:1", "m", KEY))
