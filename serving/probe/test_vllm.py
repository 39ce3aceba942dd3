"""What is known of the server, held against the source of the pinned vLLM: a wheel, which MOET_VLLM_WHEEL names."""

import os
import zipfile

import pytest

from serving.probe import metrics

TEXTS = [
    # /health knows of an engine's end alone.
    (
        "entrypoints/serve/instrumentator/health.py",
        "        await client.check_health()\n"
        "        return Response(status_code=200)\n"
        "    except EngineDeadError:\n"
        "        return Response(status_code=503)\n",
    ),
    ("v1/engine/async_llm.py", "        if self.errored:\n            raise self.dead_error\n"),
    # Neither it nor /metrics takes the key.
    ("entrypoints/serve/middleware/authenticate.py", 'GUARDED_PREFIX = ("/v1", "/v2", "/inference", "/cohere")'),
    # A request may leave the model out.
    ("entrypoints/serve/engine/serving.py", "        if not model_name:\n            return True\n"),
    ("entrypoints/openai/completion/protocol.py", "    model: str | None = None\n"),
    ("entrypoints/openai/completion/protocol.py", "    min_tokens: int = 0\n"),
    # Each step has figures, also one that gives no request a token.
    (
        "v1/core/sched/scheduler.py",
        "            # Return stats to only one of the front-ends.\n"
        "            if (eco := next(iter(engine_core_outputs.values()), None)) is None:\n"
        "                # We must return the stats even if there are no request\n"
        "                # outputs this step.\n"
        "                engine_core_outputs[0] = eco = EngineCoreOutputs()\n",
    ),
    # A prompt is counted when it ends.
    (
        "v1/metrics/stats.py",
        "        if is_prefilling:\n"
        "            if output.prefill_stats is not None:\n"
        "                self.prompt_token_stats.update_from_output(output.prefill_stats)\n",
    ),
    ("v1/core/block_pool.py", "        return 1.0 - (self.get_num_free_blocks() / total_gpu_blocks)\n"),
    # A step that takes longer is an error of vLLM's own.
    ("envs.py", "    VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: int = 300\n"),
    ("v1/executor/multiproc_executor.py", "            timeout=envs.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS,\n"),
]


@pytest.fixture(scope="module")
def wheel() -> zipfile.ZipFile:
    return zipfile.ZipFile(os.environ["MOET_VLLM_WHEEL"])


@pytest.mark.parametrize(("file", "text"), TEXTS, ids=[f"{file}: {text.split()[0]}" for file, text in TEXTS])
def test_vllm_does_what_is_said_of_it(wheel: zipfile.ZipFile, file: str, text: str) -> None:
    assert text in wheel.read(f"vllm/{file}").decode()


@pytest.mark.parametrize("sample", metrics.SAMPLES)
def test_every_sample_is_one_that_it_shows(wheel: zipfile.ZipFile, sample: str) -> None:
    files = ("v1/metrics/loggers.py", "v1/spec_decode/metrics.py")
    source = "".join(wheel.read(f"vllm/{file}").decode() for file in files)
    # The client adds _total to a counter's name, and _count to a histogram's.
    name = sample.removesuffix("_count").removesuffix("" if sample.endswith("_count") else "_total")
    assert f'"{name}"' in source
