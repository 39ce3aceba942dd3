import pytest

from serving.probe import metrics
from serving.probe.asking import ProbeError

ONE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 40.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 3.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 9.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 140.0
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
"""


def test_what_vllm_shows_is_read() -> None:
    found = metrics.parse(ONE)
    assert (found.running, found.waiting, found.prompt_tokens, found.generation_tokens) == (2, 1, 100, 40)
    assert (found.iterations, found.kv_cache_usage) == (9, 0.25)


def test_engines_are_added_and_kept_apart_in_order() -> None:
    more = ONE.replace('engine="0"', 'engine="10"') + ONE.replace('engine="0"', 'engine="2"').replace("} 2.0", "} 7.0")
    found = metrics.parse(ONE + more)
    assert [one.running for one in found.engines] == [2, 7, 2]
    assert (found.running, found.generation_tokens, found.kv_cache_usage) == (11, 120, 0.25)


@pytest.mark.parametrize(
    ("text", "says", "refused"),
    [
        ("", "none of vLLM's metrics", True),
        ("process_cpu_seconds_total 12.5\n", "none of vLLM's metrics", True),
        ('vllm:num_requests_running{engine="0"} 1\n', "has no waiting", True),
        ('vllm:num_requests_running{engine="0" 1\n', "is not Prometheus text", False),
        ('vllm:num_requests_running{engine="0"} many\n', "is not Prometheus text", False),
        ('vllm:num_requests_running{engine="0"} NaN\n', "running is nan", False),
        ("<html><body>\n", "is not Prometheus text", False),
        ("{\n", "is not Prometheus text", False),
        ("\0\n", "is not Prometheus text", False),
    ],
)
def test_what_is_not_vllms_is_said(text: str, says: str, refused: bool) -> None:
    with pytest.raises(ProbeError, match=says) as caught:
        metrics.parse(text)
    assert caught.value.refused is refused
