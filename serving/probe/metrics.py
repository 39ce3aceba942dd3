"""How far a server's engines are, from /metrics.

vllm 0.33.0 (v1/metrics/loggers.py, class PrometheusStatLogger): every step of an engine sets the gauges of its
scheduler; the counters of tokens move only where a request gets one. A long prompt moves `vllm:prompt_tokens` once, at
its end (v1/metrics/stats.py:509), and `vllm:kv_cache_usage_perc` with every chunk of it.
"""

import math
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from serving.probe.api import Api
from serving.probe.asking import ProbeError, ask

_LIMIT = 16 << 20
# Name of a sample to the field of Engine that it fills.
SAMPLES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:iteration_tokens_total_count": "iterations",
    "vllm:kv_cache_usage_perc": "kv_cache_usage",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
}
_NEEDED = ("running", "waiting", "prompt_tokens", "generation_tokens")


@dataclass(frozen=True)
class Engine:
    """One engine of a server, one for each copy of the model.

    Attributes:
        running: requests that are computed.
        waiting: requests that wait.
        prompt_tokens: of prompts whose computation has ended.
        generation_tokens: that were generated.
        iterations: steps that gave a request a token.
        kv_cache_usage: share of the KV cache's blocks that are taken, 0 to 1.
        preemptions: requests that had to give their blocks back.
        prefix_hits: tokens of prompts that were found in the prefix cache.
        drafts: verifications of drafted tokens, one for each request and step; 0 without speculation.
        accepted: drafted tokens that were accepted.
    """

    running: float = 0
    waiting: float = 0
    prompt_tokens: float = 0
    generation_tokens: float = 0
    iterations: float = 0
    kv_cache_usage: float = 0
    preemptions: float = 0
    prefix_hits: float = 0
    drafts: float = 0
    accepted: float = 0


@dataclass(frozen=True)
class Progress:
    """A server's engines at one moment, in the order of their numbers."""

    engines: tuple[Engine, ...]

    @property
    def running(self) -> int:
        """Requests that are computed."""
        return round(sum(one.running for one in self.engines))

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return round(sum(one.waiting for one in self.engines))

    @property
    def prompt_tokens(self) -> int:
        """Tokens of prompts, since the server's start."""
        return round(sum(one.prompt_tokens for one in self.engines))

    @property
    def generation_tokens(self) -> int:
        """Tokens that were generated, since the server's start."""
        return round(sum(one.generation_tokens for one in self.engines))

    @property
    def iterations(self) -> int:
        """Steps that gave a request a token, since the server's start."""
        return round(sum(one.iterations for one in self.engines))

    @property
    def kv_cache_usage(self) -> float:
        """Share of the KV cache that is taken, 0 to 1, where it is fullest."""
        return max(one.kv_cache_usage for one in self.engines)


def metrics(api: Api, timeout: float) -> Progress:
    """Asks /metrics, which needs no key.

    Raises ProbeError where it is not answered in `timeout` seconds; with `refused` where the answer has none of
    vLLM's figures, as with --disable-log-stats.
    """
    reply = ask(api, "/metrics", timeout, _LIMIT, key=False)
    where = f"{api.base_url}/metrics"
    if reply.status != 200:
        raise ProbeError(f"{where}: status {reply.status}", refused=400 <= reply.status < 500)
    try:
        return parse(reply.text)
    except ProbeError as error:
        raise ProbeError(f"{where}: {error}", error.refused) from None


def parse(text: str) -> Progress:
    """Reads what /metrics answered. Raises ProbeError."""
    found: dict[str, dict[str, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if name := SAMPLES.get(sample.name):
                    if not math.isfinite(sample.value):
                        raise ValueError(f"{sample.name} is {sample.value}")
                    found.setdefault(sample.labels.get("engine", ""), {})[name] = float(sample.value)
    # The parser raises whatever its string handling meets.
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ProbeError(f"is not Prometheus text: {error or type(error).__name__}") from None
    for values in found.values():
        if missing := [name for name in _NEEDED if name not in values]:
            raise ProbeError(f"has no {missing[0]} of an engine: expected the metrics of vLLM 0.33.0", refused=True)
    if not found:
        raise ProbeError("has none of vLLM's metrics: leave --disable-log-stats out", refused=True)
    order = sorted(found, key=lambda engine: (len(engine), engine))
    return Progress(tuple(Engine(**found[engine]) for engine in order))
