import gzip
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from threading import Event

import pytest

from serving.launch.launch import Launch
from serving.probe import asking, metrics, questions
from serving.probe.api import Api, base_url
from serving.probe.asking import ProbeError
from serving.probe.fake_server import TOKEN, Answer, FakeServer, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        yield fake


def of(*arguments: str, bind: str = "127.0.0.1") -> Api:
    launch = Launch(
        line="dsv41",
        title="",
        name="dsv41",
        image="i",
        gpus=(),
        network="published",
        bind=bind,
        port=8001,
        inner_port=8000,
        binds=(),
        environment={},
        arguments=("serve", "/model", *arguments),
        ulimits={},
        shared_memory_gib=1,
        key=None,
    )
    return Api.of(launch, "secret")


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8001"),
        ("192.0.2.7", "http://192.0.2.7:8001"),
        ("0.0.0.0", "http://127.0.0.1:8001"),
        ("::", "http://[::1]:8001"),
        ("2001:db8::1", "http://[2001:db8::1]:8001"),
    ],
)
def test_a_server_is_asked_where_its_host_reaches_it(bind: str, url: str) -> None:
    assert base_url(bind, 8001) == url == of(bind=bind).base_url


def test_the_model_is_the_last_name_that_it_was_given() -> None:
    assert of().model == "/model"
    assert of("--served-model-name=a", "--served-model-name=b=c").model == "b=c"


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(of())


def test_canary_is_one_token(server: FakeServer) -> None:
    server.answers["/v1/completions"] = (200, TOKEN)
    found = questions.canary(server.api, 10)
    assert found.tokens == 1 and found.seconds > 0
    ((path, key, body),) = server.asked
    assert (path, key) == ("/v1/completions", "Bearer k")
    asked = json.loads(body)
    assert asked["model"] == "m" and asked["max_tokens"] == asked["min_tokens"] == 1


@pytest.mark.parametrize(
    ("answer", "says", "refused"),
    [
        ((401, b'{"error":"Unauthorized"}'), "does not take the API key", True),
        ((404, b'{"message": "The model `m`\\n does not exist."}'), "status 404: .*does not exist", True),
        ((429, b"queue full"), "status 429: queue full", False),
        ((500, b"x" * 5000), r"status 500: x{200}\.\.\.$", False),
        ((200, b"<html>"), "expected a JSON object, found <html>", False),
        ((200, b"[1]"), "expected a JSON object", False),
        ((200, b"[" * 100_000), "expected a JSON object", False),
        ((200, b'{"usage": {"completion_tokens": 0}}'), "without a token", False),
        ((200, b'{"usage": {"completion_tokens": true}}'), "without a token", False),
        ((200, b"{}"), "without a token", False),
        ((200, b"{" + b" " * (2 << 20) + b"}"), "more than 1048576 bytes", False),
        ((302, b""), "status 302", False),
    ],
)
def test_what_is_no_token_is_said_in_one_line(server: FakeServer, answer: Answer, says: str, refused: bool) -> None:
    server.answers["/v1/completions"] = answer
    with pytest.raises(ProbeError, match=says) as caught:
        questions.canary(server.api, 10)
    assert caught.value.refused is refused
    assert "\n" not in str(caught.value) and "Bearer" not in str(caught.value)


def test_a_missing_key_is_said() -> None:
    with serving(key=None) as server:
        server.answers["/v1/completions"] = (401, b"{}")
        with pytest.raises(ProbeError, match="wants an API key"):
            questions.canary(server.api, 10)
        assert server.asked[0][1] is None


def test_redirects_are_not_followed(server: FakeServer) -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", "/else")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers["/v1/completions"] = elsewhere
    with pytest.raises(ProbeError, match="status 307"):
        questions.canary(server.api, 10)
    assert [path for path, _, _ in server.asked] == ["/v1/completions"]


def test_proxies_and_netrc_of_the_environment_are_not_used(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.answers["/v1/completions"] = (200, TOKEN)
    assert questions.canary(server.api, 10).tokens == 1


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, so that no single read takes long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while not Event().wait(0.05):
            handler.wfile.write(b" " * (64 << 10))
    except OSError:
        return


def silence(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.settimeout(10)
    assert handler.rfile.read(1) == b""


def half(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")


@pytest.mark.parametrize(
    ("answer", "says"),
    [(trickle, "no answer in 0.3 s"), (silence, "no answer in 0.3 s"), (half, "broke in the middle|0.3")],
)
def test_slow_and_broken_answers_end(server: FakeServer, answer: Answer, says: str) -> None:
    server.answers["/v1/completions"] = server.answers["/health"] = answer
    with pytest.raises(ProbeError, match=says) as caught:
        questions.canary(server.api, 0.3)
    assert not caught.value.refused
    assert not questions.health(server.api, 0.3)


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        api = Api(f"http://127.0.0.1:{taken.getsockname()[1]}", "m", None)
        with pytest.raises(ProbeError, match="refused"):
            questions.canary(api, 5)
        with pytest.raises(ProbeError, match="refused"):
            metrics.metrics(api, 5)
        assert not questions.health(api, 5)


def test_health_and_metrics_are_asked_without_the_key(server: FakeServer) -> None:
    server.answers["/health"] = (200, b"")
    assert questions.health(server.api, 5)
    server.answers["/health"] = (503, b"")
    assert not questions.health(server.api, 5)
    server.answers["/metrics"] = (200, b"")
    with pytest.raises(ProbeError, match="leave --disable-log-stats out"):
        metrics.metrics(server.api, 5)
    assert {key for _, key, _ in server.asked} == {None}


def test_without_a_name_the_servers_own_model_is_asked(server: FakeServer) -> None:
    server.answers["/v1/completions"] = (200, TOKEN)
    questions.canary(replace(server.api, model=""), 10)
    assert "model" not in json.loads(server.asked[0][2])


def test_a_limit_is_for_bytes_unpacked(server: FakeServer) -> None:
    def bomb(handler: BaseHTTPRequestHandler) -> None:
        body = gzip.compress(b" " * (50 << 20))
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    server.answers["/x"] = bomb
    with pytest.raises(ProbeError, match="more than 1000 bytes"):
        asking.ask(server.api, "/x", 20, 1000)
