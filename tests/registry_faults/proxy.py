"""A registry that fails on request: a proxy on loopback in front of a real one.

    with loopback_registry() as upstream, faulty(upstream) as registry:
        registry.add(answers(500), "PUT", "/manifests/", times=2)
        registry.add(cuts_answer(1000), "GET", "/blobs/")
        ... talk to registry.address ...
        assert registry.count("PUT", "/manifests/") == 3

A request meets the first fault that fits it and is not used up, else it reaches the real registry. Beside faults, the
proxy can ask for a log-in (`login`) and offer the referrers API that docker-registry 2.8 lacks (`referrers_api`).
"""

import base64
import hashlib
import http.client
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, urlsplit

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass
class Request:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Answer:
    """An answer. `length` is what Content-Length says; None: the body's."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    length: int | None = None


class Cut(Exception):  # noqa: N818 - no error of a program
    """The line is cut, after `sent` bytes of the answer's body."""

    def __init__(self, answer: Answer | None = None, sent: int = 0) -> None:
        self.answer = answer
        self.sent = sent


Forward = Callable[[Request], Answer]


@dataclass(frozen=True)
class Fault:
    """What happens to a request: `act` gets it and what asks the real registry; `reads` bytes of its body are read."""

    act: Callable[[Request, Forward], Answer]
    reads: int | None = None


def answers(status: int, code: str = "UNKNOWN", headers: dict[str, str] | None = None) -> Fault:
    """An answer of the proxy's own; the real registry learns nothing of the request."""
    body = json.dumps({"errors": [{"code": code, "message": "a fault of a test"}]}).encode()
    return gives(Answer(status, [("Content-Type", "application/json"), *(headers or {}).items()], body))


def gives(answer: Answer) -> Fault:
    """An answer of the test's own; the real registry learns nothing of the request."""
    return Fault(lambda _request, _forward: answer)


def cuts_answer(after: int = 0) -> Fault:
    """The line is cut after so many bytes of the answer's body, of which the whole length was promised."""

    def act(request: Request, forward: Forward) -> Answer:
        raise Cut(forward(request), after)

    return Fault(act)


def loses_answer() -> Fault:
    """The real registry does what was asked, and the line is cut before it can say so."""

    def act(request: Request, forward: Forward) -> Answer:
        forward(request)
        raise Cut

    return Fault(act)


def cuts_request(after: int = 0) -> Fault:
    """The line is cut after so many bytes of the request's body arrived; the real registry learns nothing of it."""

    def act(_request: Request, _forward: Forward) -> Answer:
        raise Cut

    return Fault(act, after)


def alters_answer(change: Callable[[bytes], bytes]) -> Fault:
    """The answer's body is another one."""

    def act(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        answer.body = change(answer.body)
        return answer

    return Fault(act)


def flips(body: bytes) -> bytes:
    """For alters_answer: one bit is wrong."""
    return bytes([body[0] ^ 1]) + body[1:] if body else body


def doubles(body: bytes) -> bytes:
    """For alters_answer: twice as long."""
    return body * 2


def halves(body: bytes) -> bytes:
    """For alters_answer: half of it."""
    return body[: len(body) // 2]


def claims(digest: str) -> Fault:
    """The answer's Docker-Content-Digest is another one."""

    def act(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        answer.headers = [pair for pair in answer.headers if pair[0].lower() != "docker-content-digest"]
        answer.headers.append(("Docker-Content-Digest", digest))
        return answer

    return Fault(act)


def waits(seconds: float) -> Fault:
    """The answer takes its time."""

    def act(request: Request, forward: Forward) -> Answer:
        time.sleep(seconds)
        return forward(request)

    return Fault(act)


def calls(function: Callable[[Request], object]) -> Fault:
    """`function` is called before the request goes on."""

    def act(request: Request, forward: Forward) -> Answer:
        function(request)
        return forward(request)

    return Fault(act)


@dataclass
class _Rule:
    fault: Fault
    method: str
    path: re.Pattern[str]
    left: int | None


class Faulty:
    """The proxy at `address`; its faults can be changed while it runs."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.address = ""
        self.requests: list[Request] = []
        self.referrers_api = False
        self.login: tuple[Literal["basic", "bearer"], str, str] | None = None
        self._rules: list[_Rule] = []
        self._tokens: dict[str, str] = {}
        self._subjects: dict[str, list[dict[str, object]]] = {}
        self._lock = threading.Lock()

    def add(self, fault: Fault, method: str = ".*", path: str = "", times: int | None = None) -> None:
        """Adds a fault for requests whose method matches and whose path contains a match of `path`.

        It happens `times` times; None: for ever.
        """
        self._rules.append(_Rule(fault, method, re.compile(path), times))

    def clear(self) -> None:
        """Forgets faults and requests."""
        self._rules.clear()
        self.requests.clear()

    def count(self, method: str, path: str = "") -> int:
        """How many such requests came."""
        return sum(bool(re.fullmatch(method, one.method) and re.search(path, one.path)) for one in list(self.requests))

    def handle(self, request: Request, fault: Fault | None) -> Answer:
        """The answer to a request. Raises Cut."""
        self.requests.append(request)
        if urlsplit(request.path).path == "/token":
            return self._token(request)
        if self.login and (refusal := self._refusal(request)):
            return refusal
        return fault.act(request, self._forward) if fault else self._forward(request)

    def fault(self, method: str, path: str) -> Fault | None:
        """The fault that the next such request meets; it is used up by that."""
        with self._lock:
            for rule in self._rules:
                if rule.left != 0 and re.fullmatch(rule.method, method) and rule.path.search(path):
                    rule.left = None if rule.left is None else rule.left - 1
                    return rule.fault
        return None

    def _forward(self, request: Request) -> Answer:
        if self.referrers_api and "/referrers/" in request.path:
            return self._referrers(request)
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
            headers.pop("Authorization", None)
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                headers["Content-Length"] = str(len(request.body))
            connection.request(request.method, request.path, request.body or None, headers)
            found = connection.getresponse()
            length = found.headers["Content-Length"] if request.method == "HEAD" else None
            listed = [(name, value) for name, value in found.getheaders() if name.lower() not in _HOP]
            answer = Answer(found.status, listed, found.read(), int(length) if length else None)
        finally:
            connection.close()
        if self.referrers_api and request.method == "PUT" and "/manifests/" in request.path and answer.status == 201:
            self._learn(request, answer)
        return answer

    def _learn(self, request: Request, answer: Answer) -> None:
        document = json.loads(request.body)
        if subject := document.get("subject"):
            digest = f"sha256:{hashlib.sha256(request.body).hexdigest()}"
            entry = {"mediaType": document["mediaType"], "digest": digest, "size": len(request.body)}
            entry |= {key: document[key] for key in ("artifactType", "annotations") if key in document}
            listed = self._subjects.setdefault(subject["digest"], [])
            if entry not in listed:
                listed.append(entry)
            answer.headers.append(("OCI-Subject", subject["digest"]))

    def _referrers(self, request: Request) -> Answer:
        listed = self._subjects.get(urlsplit(request.path).path.rpartition("/")[2], [])
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": listed}
        return Answer(200, [("Content-Type", _INDEX)], json.dumps(index).encode())

    def _refusal(self, request: Request) -> Answer | None:
        assert self.login
        kind, user, password = self.login
        given = request.headers.get("Authorization", "")
        name = request.path.removeprefix("/v2/").rpartition("/manifests/")[0] or "/".join(
            re.split("/(?:blobs|tags|referrers)/", request.path.removeprefix("/v2/"))[:1]
        )
        wanted = f"repository:{name}:{'pull' if request.method in ('GET', 'HEAD') else 'pull,push'}"
        if kind == "basic" and given == _basic(user, password):
            return None
        scope = self._tokens.get(given.removeprefix("Bearer "), "") if kind == "bearer" else ""
        if scope and scope.rpartition(":")[0] == wanted.rpartition(":")[0] and wanted.rpartition(":")[2] in scope:
            return None
        challenge = f'Bearer realm="http://{self.address}/token",service="test",scope="{wanted}"'
        headers = {"WWW-Authenticate": challenge if kind == "bearer" else 'Basic realm="test"'}
        return answers(401, "UNAUTHORIZED", headers).act(request, self._forward)

    def _token(self, request: Request) -> Answer:
        assert self.login
        _, user, password = self.login
        if request.headers.get("Authorization") != _basic(user, password):
            return answers(401, "UNAUTHORIZED").act(request, self._forward)
        token = secrets.token_hex(8)
        self._tokens[token] = parse_qs(urlsplit(request.path).query).get("scope", [""])[0]
        return Answer(200, [("Content-Type", "application/json")], json.dumps({"token": token}).encode())


@contextmanager
def faulty(upstream: str) -> Iterator[Faulty]:
    """A proxy in front of the registry at `upstream` (HOST:PORT), on a free port of loopback."""
    proxy = Faulty(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self._serve
            raise AttributeError(name)

        def _serve(self) -> None:
            fault = proxy.fault(self.command, self.path)
            try:
                body = self._body(fault.reads if fault else None)
                answer = proxy.handle(Request(self.command, self.path, dict(self.headers.items()), body), fault)
                self._send(answer, len(answer.body))
            except Cut as cut:
                if cut.answer:
                    self._send(cut.answer, cut.sent)
                self._hang_up()
            except OSError:
                self._hang_up()

        def _body(self, most: int | None) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                return b"".join(iter(self._chunk, b""))
            length = int(self.headers.get("Content-Length") or 0)
            return self.rfile.read(length if most is None else min(most, length))

        def _chunk(self) -> bytes:
            size = int(self.rfile.readline().partition(b";")[0], 16)
            data = self.rfile.read(size)
            self.rfile.readline()
            return data

        def _send(self, answer: Answer, sent: int) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            length = len(answer.body) if answer.length is None else answer.length
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[:sent])
            self.wfile.flush()

        def _hang_up(self) -> None:
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_: object) -> None:
            """Says nothing of a client that hung up."""

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
