"""The settings of the pass that fills the caches, before the server is started as it was asked for."""

from dataclasses import replace

from serving.launch.settings import Setting, Settings
from serving.plan.plan import least_blocks

SOURCE = "first start"
_BLOCKS = "--num-gpu-blocks-override"


def tuning(settings: Settings) -> Settings | None:
    """The settings of a tuning pass: knobs of the profile's `first_start.at_most` are lowered to that.

    None where the profile has none, or nothing is above it: then one start, which takes longer, is enough. The KV cache
    gets the blocks of one request of the longest context, where the planner knows how many these are: with fewer vLLM
    would not start, which so much less memory might come to, and with more there would be less beside it.

    What is tuned is used by the second start because vLLM's names of caches depend on neither: gpu_memory_utilization
    and num_gpu_blocks_override are left out of its hash (vllm 0.33.0, config/cache.py:405-410).
    """
    first = settings.profile.first_start
    lowered: dict[str, Setting] = {}
    for name, highest in (first.at_most if first else {}).items():
        setting = settings.by_name[name]
        if isinstance(setting.value, int | float) and setting.value > highest:
            lowered[name] = replace(setting, value=highest, source=SOURCE)
    if not lowered:
        return None
    extra = next((one for one in settings.by_name.values() if one.knob.role == "arguments"), None)
    if extra is not None and (blocks := least_blocks(settings)) is not None:
        words = extra.value if isinstance(extra.value, tuple) else ()
        if not any(word.startswith(_BLOCKS) for word in words):
            lowered[extra.knob.name] = replace(extra, value=(*words, f"{_BLOCKS}={blocks}"), source=SOURCE)
    return Settings(settings.profile, {**settings.by_name, **lowered})
