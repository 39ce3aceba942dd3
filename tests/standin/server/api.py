"""The paths of vLLM 0.33.0's API server that Moet asks, over the standard library's HTTP server."""

import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any

from tests.standin.server import answers, log, metrics, tokens
from tests.standin.server.engine import Engine

_KEY = "VLLM_API_KEY"
_GUARDED = "/v1"
# What tokens are part of (reasoning, content, tool), and the tokens of one step.
_Step = tuple[str, list[str]]


class Server(ThreadingHTTPServer):
    """Listens at the arguments' address; each request has a thread."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engine: Engine) -> None:
        """Raises OSError where the address is taken."""
        self.engine = engine
        if ":" in engine.arguments.host:
            self.address_family = socket.AF_INET6
        super().__init__((engine.arguments.host, engine.arguments.port), _Handler)


class _ProblemError(Exception):
    """An answer that is an error: status and message."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        paths = {"/health": self._health, "/metrics": self._metrics, "/version": self._version}
        self._guarded({**paths, "/v1/models": self._models})

    def do_POST(self) -> None:
        paths = {"/v1/completions": self._completion, "/v1/chat/completions": self._chat}
        self._guarded({**paths, "/tokenize": self._tokenize})

    def log_message(self, text: str, *values: Any) -> None:
        """As uvicorn writes its access log."""
        log.raw(f"(APIServer pid={os.getpid()}) INFO:     {self.client_address[0]} - {text % values}")

    def _guarded(self, paths: dict[str, Any]) -> None:
        path = self.path.partition("?")[0]
        key = os.environ.get(_KEY)
        size = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(size)
        try:
            if key and path.startswith(_GUARDED):
                scheme, _, given = self.headers.get("Authorization", "").partition(" ")
                if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), key.encode()):
                    return self._json({"error": "Unauthorized"}, 401)
            if path not in paths:
                return self._json({"detail": "Not Found"}, 404)
            paths[path]()
        except _ProblemError as error:
            problem = {"message": str(error), "type": error.kind, "param": None, "code": error.status}
            self._json({"error": problem}, error.status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        return None

    @property
    def _model(self) -> str:
        return self.server.engine.arguments.name

    def _health(self) -> None:
        self._send(b"", self.server.engine.how.health, "text/plain")

    def _metrics(self) -> None:
        if not self.server.engine.how.metrics:
            self._json({"detail": "Not Found"}, 404)
            return
        self._send(metrics.render(self.server.engine).encode(), 200, "text/plain; version=0.0.4; charset=utf-8")

    def _version(self) -> None:
        self._json({"version": "0.33.0"})

    def _models(self) -> None:
        arguments = self.server.engine.arguments
        card = {"id": self._model, "object": "model", "created": 0, "owned_by": "vllm", "root": arguments.model}
        self._json({"object": "list", "data": [{**card, "max_model_len": arguments.max_model_len}]})

    def _tokenize(self) -> None:
        body = self._asked()
        texts = [str(body.get("prompt", ""))]
        texts += [str(message.get("content") or "") for message in body.get("messages") or ()]
        found = sum(tokens.count(text) for text in texts)
        length = self.server.engine.arguments.max_model_len
        self._json({"count": found, "max_model_len": length, "tokens": list(range(found)), "token_strs": None})

    def _completion(self) -> None:
        body = self._asked()
        prompts = body.get("prompt", "")
        prompt = prompts if isinstance(prompts, str) else str(prompts[0])
        limit = int(body.get("max_tokens") or 16)
        parts = answers.Answer((), list(islice(tokens.prose(prompt), limit)), None, tokens.count(prompt), "length")
        self._answer(body, parts, "text_completion", limit)

    def _chat(self) -> None:
        body, how = self._asked(), self.server.engine.how
        try:
            answer = answers.chat(body, how.wrong, dict(how.refuse))
        except answers.RefusedError as error:
            raise _ProblemError(400, str(error)) from None
        self._answer(body, answer, "chat.completion", int(body.get("max_tokens") or 1))

    def _asked(self) -> dict[str, Any]:
        try:
            body = json.loads(self.body)
        except ValueError as error:
            raise _ProblemError(400, f"the body is no JSON: {error}") from None
        if not isinstance(body, dict):
            raise _ProblemError(400, "the body is no JSON object")
        if body.get("model", self._model) != self._model:
            raise _ProblemError(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        return body

    def _answer(self, body: dict[str, Any], answer: answers.Answer, kind: str, limit: int) -> None:
        length = self.server.engine.arguments.max_model_len
        if answer.prompt_tokens + limit > length:
            said = f"This model's maximum context length is {length} tokens. However, your prompt contains "
            raise _ProblemError(400, f"{said}{answer.prompt_tokens} input tokens and {limit} were asked for.")
        with self.server.engine.request():
            self.server.engine.prefill(answer.prompt_tokens)
            steps = self._steps(answer)
            if body.get("stream"):
                self._stream(body, answer, kind, steps)
            else:
                whole = [*steps]
                self._json(_whole(answer, self._head(kind), whole, self._usage(answer, whole)))

    def _steps(self, answer: answers.Answer) -> Iterator[_Step]:
        """Pieces of the answer as they are decoded, each with what it is part of."""
        for field, words in (("reasoning", answer.reasoning), ("content", answer.content)):
            for step in self.server.engine.decode(words):
                yield field, step
        if answer.tool:
            for step in self.server.engine.decode(tokens.split(answer.tool["arguments"])):
                yield "tool", step

    def _usage(self, answer: answers.Answer, steps: Sequence[_Step]) -> dict[str, int] | None:
        if "usage" in self.server.engine.how.wrong:
            return None
        made = sum(len(step) for _, step in steps)
        prompt = answer.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}

    def _stream(
        self, body: dict[str, Any], answer: answers.Answer, kind: str, steps: Iterator[_Step]
    ) -> None:
        options = body.get("stream_options") or {}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        done: list[_Step] = []
        for field, step in steps:
            done.append((field, step))
            self._event(self._part(kind, answer, field, step, done, options, None))
        self._event(self._part(kind, answer, "content", [], done, options, answer.finish))
        if options.get("include_usage") and (usage := self._usage(answer, done)):
            self._event({**self._head(f"{kind}.chunk"), "choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _part(
        self,
        kind: str,
        answer: answers.Answer,
        field: str,
        step: Sequence[str],
        done: Sequence[_Step],
        options: dict[str, Any],
        finish: str | None,
    ) -> dict[str, Any]:
        text = "".join(step)
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if kind == "text_completion":
            choice["text"] = text
        elif field == "tool":
            first = sum(one == "tool" for one, _ in done) == 1
            call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
            if first and answer.tool:
                call |= {"id": "call_0", "type": "function"}
                call["function"]["name"] = answer.tool["name"]
            choice["delta"] = {"tool_calls": [call]}
        else:
            choice["delta"] = {"role": "assistant", field: text} if len(done) == 1 else {field: text}
        part = {**self._head("text_completion" if kind == "text_completion" else f"{kind}.chunk"), "choices": [choice]}
        if options.get("continuous_usage_stats") and (usage := self._usage(answer, done)):
            part["usage"] = usage
        return part

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "standin-0", "object": kind, "created": int(time.time()), "model": self._model}

    def _event(self, part: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(part)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), status, "application/json")

    def _send(self, data: bytes, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _whole(
    answer: answers.Answer, head: dict[str, Any], steps: Sequence[_Step], usage: dict[str, int] | None
) -> dict[str, Any]:
    texts = {field: "".join("".join(step) for one, step in steps if one == field) for field in ("reasoning", "content")}
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": answer.finish}
    if head["object"] == "text_completion":
        choice["text"] = texts["content"]
    else:
        message: dict[str, Any] = {"role": "assistant", "content": texts["content"] or None}
        message["reasoning"] = texts["reasoning"] or None
        if answer.tool:
            message["tool_calls"] = [{"id": "call_0", "type": "function", "function": answer.tool}]
        choice["message"] = message
    return {**head, "choices": [choice], **({"usage": usage} if usage else {})}
