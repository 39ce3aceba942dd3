from serving.launch.plan import plan
from serving.startup import made_up
from serving.startup.first_start import tuning


def test_memory_is_lowered_and_nothing_else() -> None:
    asked = made_up.chosen("MAX_NUM_SEQS=4")
    first = tuning(asked)
    assert first is not None
    served, tuned = (plan(one, "dsv41:vllm0.33.0-r1", None, "published").launch for one in (asked, first))
    assert set(served.arguments) - set(tuned.arguments) == {"--gpu-memory-utilization=0.94"}
    # The blocks of one request of 512K tokens, as test_kv_budget.py of the patches' tests has them of vLLM itself.
    added = {"--gpu-memory-utilization=0.92", "--num-gpu-blocks-override=5142"}
    assert set(tuned.arguments) - set(served.arguments) == added
    assert first.by_name["GPU_MEM_UTIL"].source == "first start"
    assert asked.by_name["GPU_MEM_UTIL"].text == "0.94"


def test_extra_arguments_are_kept() -> None:
    first = tuning(made_up.chosen("EXTRA_ARGS=--seed 1"))
    assert first is not None
    assert first.by_name["EXTRA_ARGS"].value == ("--seed", "1", "--num-gpu-blocks-override=5142")
    given = tuning(made_up.chosen("EXTRA_ARGS=--num-gpu-blocks-override=9000"))
    assert given is not None
    assert given.by_name["EXTRA_ARGS"].value == ("--num-gpu-blocks-override=9000",)


def test_what_is_low_enough_is_left_as_it_is() -> None:
    assert tuning(made_up.chosen("GPU_MEM_UTIL=0.92")) is None
    assert tuning(made_up.chosen("GPU_MEM_UTIL=0.9")) is None
