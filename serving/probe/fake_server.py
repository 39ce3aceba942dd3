"""For tests: a server whose every answer is given, also those that no server should give."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from serving.probe.api import Api

Answer = tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None]
MODEL = "m"
KEY = "k"
TOKEN = b'{"choices": [{"text": "2"}], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}'


@dataclass
class FakeServer:
    """Path to answer: status and body, or what writes the whole response; and what was asked: path, key, body."""

    api: Api
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, str | None, bytes]] = field(default_factory=list)


@contextmanager
def serving(key: str | None = KEY) -> Iterator[FakeServer]:
    """A server at a free loopback port; a path without an answer gets 404."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fake.asked.append((self.path, self.headers.get("Authorization"), body))
            answer = fake.answers.get(self.path, (404, b"nothing here"))
            if callable(answer):
                self.close_connection = True
                answer(self)
                return
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        do_POST = do_GET  # noqa: N815

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            # Whoever asks may hang up, which is told on stderr otherwise.
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        fake = FakeServer(Api(f"http://127.0.0.1:{server.server_address[1]}", MODEL, key))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
