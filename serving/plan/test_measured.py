import os
import re
import zipfile

import pytest

from serving.plan import measured
from serving.plan.made_up import LOG
from tools.cli.errors import UserError


def test_gpu_with_the_least_counts() -> None:
    assert measured.read(LOG, "log") == measured.Measured(3.14, 1_490_870, 524_288, 94.97, 0.94, 84.32, 2.23)


def test_last_start_of_several_counts() -> None:
    later = [line.replace("3.2 ", "2.5 ").replace("3.14", "2.4").replace("1,490,870", "1,140,000") for line in LOG]
    found = measured.read([*LOG, *later], "log")
    assert (found.available, found.tokens) == (2.4, 1_140_000)


def test_log_that_ends_early() -> None:
    assert measured.read(LOG[:2], "log") == measured.Measured(3.14)
    with pytest.raises(UserError, match=r"^server\.log: has no line 'Available KV cache memory'"):
        measured.read(["x"], "server.log")


def test_words_are_vllms() -> None:
    with zipfile.ZipFile(os.environ["MOET_VLLM_WHEEL"]) as wheel:
        worker = wheel.read("vllm/v1/worker/gpu_worker.py").decode()
        utils = wheel.read("vllm/v1/core/kv_cache_utils.py").decode()
    # What is put together of several literals is compared without what lies between them.
    joined = re.sub(r'"\s+f?"', "", worker)
    for text in (
        "Available KV cache memory: %s GiB",
        "Free memory on device (",
        " GiB) on startup. Desired GPU memory utilization is (",
        " GiB). Actual usage is ",
        "GiB for consumed memory (weights + non-torch), ",
        " GiB for peak activation, and ",
        "GiB for CUDAGraph memory. Replace",
    ):
        assert text in joined, text
    joined = re.sub(r'"\s+f?"', "", utils)
    assert "%s KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx" in joined
