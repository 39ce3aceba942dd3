"""The stand-in as a plain process: it answers as vLLM does, misbehaves when told, and is told while it runs."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from serving.check import png
from tests.engine.ports import free_port
from tests.standin.server import tokens

# Far more than anything takes, for a machine that is busy.
_SECONDS = 120
_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "unit": {"enum": ["kelvin", "celsius"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 2},
    },
    "$defs": {"tag": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["city", "unit", "days", "tags"],
    "additionalProperties": False,
}


class Running:
    """A stand-in that runs here: `url`, `log`, and the folder that tells it how to behave."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]", port: int) -> None:
        self.folder, self.process, self.url = folder, process, f"http://127.0.0.1:{port}"
        self.session = requests.Session()
        self.session.trust_env = False

    def behave(self, **how: Any) -> None:
        (self.folder / "draft").write_text(json.dumps(how))
        (self.folder / "draft").rename(self.folder / "standin.json")

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.session.get(self.url + path, timeout=_SECONDS, **more)

    def post(self, path: str, body: Any, **more: Any) -> requests.Response:
        return self.session.post(self.url + path, json=body, timeout=more.pop("timeout", _SECONDS), **more)

    def chat(self, text: Any, **more: Any) -> dict[str, Any]:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 30, **more}
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["choices"][0]["message"]
        return found

    def metric(self, name: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics").text)
        return next(sample.value for family in families for sample in family.samples if sample.name == name)


def start(folder: Path, *more: str, **environment: str) -> Running:
    port = free_port()
    (folder / "home").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.standin.server", "serve", str(folder), "--host=127.0.0.1", f"--port={port}"]
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "HOME": str(folder / "home")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--served-model-name", "m", *more],
            env={**os.environ, **path, **environment},
            stderr=log,
            text=True,
        )
    return Running(folder, process, port)


def ready(running: Running) -> Running:
    deadline = time.monotonic() + _SECONDS
    while "startup complete" not in (running.folder / "log").read_text():
        assert running.process.poll() is None and time.monotonic() < deadline, (running.folder / "log").read_text()
        time.sleep(0.02)
    return running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = ready(start(tmp_path, '--speculative-config={"num_speculative_tokens":5}', "--max-model-len=4096"))
    yield running
    running.process.kill()
    running.process.wait()


def test_answers(server: Running) -> None:
    assert server.get("/health").status_code == 200
    (card,) = server.get("/v1/models").json()["data"]
    assert (card["id"], card["root"], card["max_model_len"]) == ("m", str(server.folder), 4096)
    body = {"model": "m", "prompt": "Hello there", "max_tokens": 7}
    first, second = (server.post("/v1/completions", body).json() for _ in range(2))
    assert first["choices"] == second["choices"] and tokens.count(first["choices"][0]["text"]) == 7
    assert first["usage"] == {"prompt_tokens": 2, "completion_tokens": 7, "total_tokens": 9}
    assert server.post("/tokenize", {"prompt": "Hello there"}).json()["count"] == 2
    assert server.metric("vllm:generation_tokens_total") == 14 and server.metric("vllm:prompt_tokens_total") == 4
    drafts, accepted = (server.metric(f"vllm:spec_decode_num_{one}_total") for one in ("drafts", "accepted_tokens"))
    assert drafts + accepted == 14 and drafts == server.metric("vllm:iteration_tokens_total_count")


def test_streams(server: Running) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"messages": [{"role": "user", "content": "Tell me"}], "max_tokens": 20, "stream": True}
    body["stream_options"] = options
    lines = server.post("/v1/chat/completions", body).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    counts = [part["usage"]["completion_tokens"] for part in parts]
    assert counts == sorted(counts) and counts[-1] == 20 and not parts[-1]["choices"]
    text = "".join(part["choices"][0]["delta"]["content"] for part in parts[:-1])
    assert tokens.count(text) == 20 and parts[-2]["choices"][0]["finish_reason"] == "length"


def test_finds_what_is_asked_for(server: Running) -> None:
    hidden = "It rained. The access code of the mill is 48-Zeta. It rained. What is the code?"
    assert server.chat(hidden)["content"] == "It is 48-Zeta."
    picture = base64.b64encode(png.digits("4071", (0, 0, 255))).decode()
    shown = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}]
    assert server.chat(shown)["content"] == "The picture shows the number 4071 in blue."
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}}
    jsonschema.validate(json.loads(server.chat("In Oslo", response_format=form, max_tokens=90)["content"]), _SCHEMA)
    tool = {"type": "function", "function": {"name": "weather", "parameters": _SCHEMA}}
    (call,) = server.chat("What is the weather in Oslo, in celsius?", tools=[tool])["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    jsonschema.validate(arguments, _SCHEMA)
    assert (arguments["city"], arguments["unit"]) == ("Oslo", "celsius")
    assert server.chat("Think", reasoning_effort="high")["reasoning"]
    assert server.chat("Think", reasoning_effort="none")["reasoning"] is None


def test_wrong_where_told(server: Running) -> None:
    server.behave(wrong=["needle", "json", "tool", "usage"], refuse={"reasoning_effort": ["xhigh"]}, metrics=False)
    assert "48-Zeta" not in server.chat("The access code is 48-Zeta. What is the code?")["content"]
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(server.chat("x", response_format={"type": "json_object"})["content"])
    tool = {"type": "function", "function": {"name": "weather", "parameters": _SCHEMA}}
    assert "tool_calls" not in server.chat("Weather?", tools=[tool])
    for effort, status in [("xhigh", 400), ("high", 200), ("none at all", 400)]:
        body = {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": effort}
        assert server.post("/v1/chat/completions", body).status_code == status
    assert "usage" not in server.post("/v1/completions", {"prompt": "x"}).json()
    assert server.get("/metrics").status_code == 404


def test_refuses(server: Running) -> None:
    long = {"prompt": "word " * 5000}
    for body, status, said in [
        (long, 400, "maximum context length is 4096 tokens"),
        ({"model": "other", "prompt": "x"}, 404, "The model `other` does not exist."),
        ([], 400, "no JSON object"),
    ]:
        answer = server.post("/v1/completions", body)
        assert answer.status_code == status and said in answer.json()["error"]["message"]
    assert server.get("/v1/none").status_code == 404


def test_wants_the_key(tmp_path: Path) -> None:
    server = ready(start(tmp_path, VLLM_API_KEY="secret"))
    try:
        assert server.get("/v1/models").status_code == 401
        assert server.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert server.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert server.get("/health").status_code == server.get("/metrics").status_code == 200
    finally:
        server.process.kill()
        server.process.wait()


def test_hangs_and_comes_back(server: Running) -> None:
    server.behave(hang_after_requests=1)
    assert server.post("/v1/completions", {"prompt": "x"}).status_code == 200
    with pytest.raises(requests.exceptions.Timeout):
        server.post("/v1/completions", {"prompt": "x"}, timeout=0.5)
    # As with vLLM, a request that no step has computed is in no figure.
    assert server.get("/health").status_code == 200 and server.metric("vllm:num_requests_running") == 0
    server.behave()
    assert server.post("/v1/completions", {"prompt": "x"}).status_code == 200


def test_crashes(server: Running) -> None:
    server.behave(crash_after_requests=0)
    with pytest.raises(requests.exceptions.ConnectionError):
        server.post("/v1/completions", {"prompt": "x"})
    assert server.process.wait(_SECONDS) == 1
    assert "EngineCore encountered a fatal error." in (server.folder / "log").read_text()


def test_ends_on_a_signal(server: Running) -> None:
    server.process.terminate()
    assert server.process.wait(_SECONDS) == 0


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ({"fail_at": {"phase": "weights", "status": 7, "line": "ValueError: no such tensor"}}, 7, "no such tensor"),
        ({"oom_at": {"phase": "autotune"}}, 1, "torch.OutOfMemoryError: CUDA out of memory"),
        ({"refuse_above_util": 0.9}, 1, "is less than desired GPU memory utilization (0.95"),
        ({"cold_util": 0.92}, 1, "torch.OutOfMemoryError"),
        ({"for": {"--gpu-memory-utilization=0.95": {"fail_at": {"phase": "api"}}}}, 1, "was told to fail here"),
        ({"for": {"VLLM_MOET_X=0": {"fail_at": {"phase": "api"}}}}, 1, "was told to fail here"),
        ({"no_such": 1}, 2, "standin.json: no_such: is nothing that the stand-in does"),
    ],
)
def test_fails_at_the_start(tmp_path: Path, how: dict[str, Any], status: int, said: str) -> None:
    (tmp_path / "standin.json").write_text(json.dumps(how))
    server = start(tmp_path, "--gpu-memory-utilization=0.95", VLLM_MOET_X="0")
    assert server.process.wait(_SECONDS) == status
    assert said in (tmp_path / "log").read_text()


def test_a_tuned_cache_makes_the_next_start_another(tmp_path: Path) -> None:
    (tmp_path / "standin.json").write_text(json.dumps({"cold_util": 0.92}))
    first = ready(start(tmp_path, "--gpu-memory-utilization=0.92"))
    first.process.terminate()
    first.process.wait(_SECONDS)
    second = ready(start(tmp_path, "--gpu-memory-utilization=0.95"))
    second.process.terminate()
    assert second.process.wait(_SECONDS) == 0


def test_hangs_at_a_phase_until_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "standin.json").write_text(json.dumps({"hang_at": "memory"}))
    server = start(tmp_path)
    try:
        deadline = time.monotonic() + _SECONDS
        while "Model loading took" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)
        assert "Available KV cache memory" not in (tmp_path / "log").read_text()
        server.behave()
        ready(server)
    finally:
        server.process.kill()
        server.process.wait()
