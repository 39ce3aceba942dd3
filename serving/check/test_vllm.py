"""What checks send and read, held against the source of the pinned vLLM: a wheel, which MOET_VLLM_WHEEL names."""

import ast
import json
import os
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from serving.check import published, run, vision
from serving.check.client import Client, ClientError
from serving.check.subject import Sizes, Subject
from serving.check.talk import CHAT, Model
from serving.check.target import by_url
from serving.probe.fake_server import serving

CHAT_PROTOCOL = "vllm/entrypoints/openai/chat_completion/protocol.py"
SHARED_PROTOCOL = "vllm/entrypoints/generate/base/protocol.py"
TOKENIZE_PROTOCOL = "vllm/entrypoints/serve/tokenize/protocol.py"


@cache
def source(path: str) -> str:
    with zipfile.ZipFile(os.environ["MOET_VLLM_WHEEL"]) as wheel:
        return wheel.read(path).decode()


@cache
def fields(path: str, name: str) -> set[str]:
    """The fields of a pydantic model, with their aliases."""
    (found,) = [one for one in ast.parse(source(path)).body if isinstance(one, ast.ClassDef) and one.name == name]
    named = {one.target.id for one in found.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    return named | set(re.findall(r'alias="(\w+)"', ast.unparse(found).replace("'", '"')))


@pytest.fixture(scope="module")
def asked() -> list[tuple[str, dict[str, Any]]]:
    """Path and body of every request that any check makes, once each kind."""
    sizes = Sizes(answer=64, prompt=100, streams=2, needles=(100,))
    with serving() as server:
        server.answers = {"/tokenize": (200, b'{"count": 2000}'), CHAT: (200, b'{"choices": [{"message": {}}]}')}
        target = by_url(server.api.base_url, "m", None, {})
        model = Model("m", 8192, {"reasoning_effort": "none"})
        subject = Subject(target, Client(server.api, 5), model, published.load()["dsv41"], None, sizes)
        for check in run.checks(subject, run.GROUPS):
            try:
                check.run()
            except ClientError:
                continue
        return [(path, json.loads(body)) for path, _, body in server.asked if body]


def bodies(asked: list[tuple[str, dict[str, Any]]], path: str) -> Iterator[dict[str, Any]]:
    found = [body for one, body in asked if one == path]
    assert found
    return iter(found)


def test_every_field_of_a_chat_request_is_vllms(asked: list[tuple[str, dict[str, Any]]]) -> None:
    sent = set[str]()
    for body in bodies(asked, CHAT):
        sent |= body.keys()
        assert body.get("stream_options", {}).keys() <= fields(SHARED_PROTOCOL, "StreamOptions")
        form = body.get("response_format", {})
        assert form.keys() <= fields(SHARED_PROTOCOL, "ResponseFormat")
        assert form.get("json_schema", {}).keys() <= fields(SHARED_PROTOCOL, "JsonSchemaResponseFormat")
        for tool in body.get("tools", []):
            assert tool.keys() <= fields(CHAT_PROTOCOL, "ChatCompletionToolsParam")
            assert tool["function"].keys() <= fields(SHARED_PROTOCOL, "FunctionDefinition")
    assert sent <= fields(CHAT_PROTOCOL, "ChatCompletionRequest")
    assert {"cache_salt", "ignore_eos", "reasoning_effort", "response_format", "return_prompt_text", "tools"} <= sent


def test_every_field_of_a_tokenize_request_is_vllms(asked: list[tuple[str, dict[str, Any]]]) -> None:
    for body in bodies(asked, "/tokenize"):
        assert body.keys() <= fields(TOKENIZE_PROTOCOL, "TokenizeCompletionRequest")
    assert "count" in fields(TOKENIZE_PROTOCOL, "TokenizeResponse")


def test_fields_that_answers_are_read_by() -> None:
    assert {"delta", "finish_reason"} <= fields(CHAT_PROTOCOL, "ChatCompletionResponseStreamChoice")
    assert {"content", "reasoning", "tool_calls"} <= fields(SHARED_PROTOCOL, "DeltaMessage")
    assert "prompt_text" in fields(CHAT_PROTOCOL, "ChatCompletionResponse")
    served = "vllm/entrypoints/serve/engine/protocol.py"
    assert {"prompt_tokens", "completion_tokens"} <= fields(served, "UsageInfo")
    assert {"id", "max_model_len"} <= fields(served, "ModelCard")


def test_efforts_are_names_of_the_api() -> None:
    literal = re.search(r"ReasoningEffort.*?Literal\[(.*?)\]", source("vllm/renderers/params.py"), re.DOTALL)
    assert literal
    names = re.findall(r'"(\w+)"', literal[1])
    for line in published.load().values():
        assert set(line.efforts) <= set(names)


def test_a_step_counts_where_it_gives_a_request_tokens() -> None:
    assert "IterationStats() if (log_stats and num_outputs) else None" in source("vllm/v1/engine/async_llm.py")
    counted = "        if iteration_stats is None:\n            return\n"
    logger = source("vllm/v1/metrics/loggers.py").partition("class PrometheusStatLogger")[2]
    before, _, after = logger.partition(counted)
    assert "histogram_iteration_tokens[engine_idx].observe(" in after.partition("    def record_")[0]
    assert "histogram_iteration_tokens[engine_idx].observe(" not in before


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("vllm/multimodal/registry.py", "m is not a multimodal model"),
        ("vllm/multimodal/processing/context.py", "At most 0 image(s) may be provided in one prompt."),
    ],
)
def test_the_words_of_a_server_that_takes_no_images(path: str, words: str) -> None:
    template = words.replace("m is", "{model_name} is").replace("0 image(s)", "{limit} {modality}(s)")
    assert f'f"{template}"' in source(path)
    assert vision.BLIND.search(words)
