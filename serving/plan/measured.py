"""What a server's own log says of its memory, in the words of vLLM 0.33.0. test_measured.py holds them against it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tools.cli.errors import UserError

_NUMBER = r"(-?\d+(?:\.\d+)?)"
# vllm/v1/worker/gpu_worker.py:773.
_AVAILABLE = re.compile(rf"Available KV cache memory: {_NUMBER} GiB")
# vllm/v1/core/kv_cache_utils.py:1147-1154.
_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request")
# vllm/v1/worker/gpu_worker.py:1044-1063.
_USAGE = re.compile(
    rf"Free memory on device \({_NUMBER}/{_NUMBER} GiB\) on startup\. Desired GPU memory utilization is "
    rf"\({_NUMBER}, {_NUMBER} GiB\)\. Actual usage is {_NUMBER} GiB for consumed memory \(weights \+ non-torch\), "
    rf"{_NUMBER} GiB for peak activation, and {_NUMBER} GiB for CUDAGraph memory\."
)


@dataclass(frozen=True)
class Measured:
    """A server's figures; None for what its log does not state. Sizes are in GiB.

    Attributes:
        available: for the KV cache, of the GPU with the least.
        tokens: that vLLM counts in it.
        context: tokens of the longest request.
        card: a GPU's memory.
        utilization: what it may take of that.
        consumed: weights, and what is outside torch; of the GPU with the most.
        activation: the peak of a step, and vLLM's estimate of the graphs.
    """

    available: float
    tokens: int | None = None
    context: int | None = None
    card: float | None = None
    utilization: float | None = None
    consumed: float | None = None
    activation: float | None = None


def read(lines: Iterable[str], name: str) -> Measured:
    """Reads a log; of several starts in it the last one. Raises UserError where it states no memory of the KV cache."""
    available: list[float] = []
    usage: list[tuple[str, ...]] = []
    tokens = context = None
    for line in lines:
        if found := _AVAILABLE.search(line):
            if tokens is not None:
                available, usage, tokens, context = [], [], None, None
            available.append(float(found[1]))
        if found := _TOKENS.search(line):
            tokens, context = (int(found[number].replace(",", "")) for number in (1, 2))
        if found := _USAGE.search(line):
            usage.append(found.groups())
    if not available:
        raise UserError(f"{name}: has no line 'Available KV cache memory': expected the log of a server that got there")
    largest = max(usage, key=lambda one: float(one[4]), default=None)
    if largest is None:
        return Measured(min(available), tokens, context)
    _, card, utilization, _, consumed, activation, _ = (float(text) for text in largest)
    return Measured(min(available), tokens, context, card, utilization, consumed, activation)
