"""/metrics with the names that vLLM 0.33.0 has (vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py)."""

from tests.standin.server.engine import Engine


def render(engine: Engine) -> str:
    """The text form of Prometheus."""
    counts, spec = engine.counts, engine.arguments.spec_tokens
    labels = f'engine="0",model_name="{_escaped(engine.arguments.name)}"'
    lines: list[str] = []

    def add(name: str, kind: str, value: float, meaning: str) -> None:
        sample = f"{name}_total" if kind == "counter" else name
        lines.extend((f"# HELP {sample} {meaning}", f"# TYPE {sample} {kind}", f"{sample}{{{labels}}} {float(value)}"))

    add("vllm:num_requests_running", "gauge", counts.shown, "Number of requests in model execution batches.")
    add("vllm:num_requests_waiting", "gauge", counts.waiting, "Number of requests waiting to be processed.")
    add("vllm:kv_cache_usage_perc", "gauge", min(1, counts.shown / 8), "KV-cache usage. 1 means 100 percent usage.")
    add("vllm:prefix_cache_queries", "counter", counts.prompt_tokens, "Prefix cache queries, in tokens.")
    add("vllm:prefix_cache_hits", "counter", 0, "Prefix cache hits, in tokens.")
    add("vllm:num_preemptions", "counter", 0, "Cumulative number of preemption from the engine.")
    add("vllm:prompt_tokens", "counter", counts.prompt_tokens, "Number of prefill tokens processed.")
    add("vllm:generation_tokens", "counter", counts.generation_tokens, "Number of generation tokens processed.")
    name, meaning = "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step."
    lines += [f"# HELP {name} {meaning}", f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{labels},le="+Inf"}} {float(counts.iterations)}']
    lines += [f"{name}_count{{{labels}}} {float(counts.iterations)}"]
    lines += [f"{name}_sum{{{labels}}} {float(counts.iteration_tokens)}"]
    if spec:
        add("vllm:spec_decode_num_drafts", "counter", counts.drafts, "Number of spec decoding drafts.")
        add("vllm:spec_decode_num_draft_tokens", "counter", counts.drafted, "Number of draft tokens.")
        add("vllm:spec_decode_num_accepted_tokens", "counter", counts.accepted, "Number of accepted tokens.")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
