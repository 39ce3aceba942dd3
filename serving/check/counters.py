"""What the engine's own counters say of the time between two looks.

A step, here, is one that gave tokens to a request (vLLM 0.33.0: v1/metrics/loggers.py:1273, v1/engine/
async_llm.py:883); chunks of a prompt before the last one are none.
"""

from collections.abc import Callable
from dataclasses import dataclass

from serving.check.client import Client, LostError
from serving.probe.asking import ProbeError
from serving.probe.metrics import Engine, Progress, metrics

_SECONDS = 10


@dataclass(frozen=True)
class Counted:
    """What happened between two looks.

    Attributes:
        steps: engine steps; with data parallelism, of the engine that made the most.
        generated: tokens, of all requests.
        drafts: verifications of drafted tokens, one for each request and step; 0 without speculation.
        accepted: drafted tokens that were accepted.
        preempted: requests that were put off for want of KV blocks.
        cached: prompt tokens that were found in the prefix cache.
    """

    steps: int
    generated: int
    drafts: int
    accepted: int
    preempted: int
    cached: int


def look(client: Client) -> Progress | None:
    """The counters now; None where the server shows none. Raises LostError."""
    try:
        return metrics(client.api, _SECONDS)
    except ProbeError as error:
        if error.refused:
            return None
        raise LostError(client.clean(str(error))) from None


def between(before: Progress | None, after: Progress | None) -> Counted | None:
    """What happened between two looks; None where there were none, or the server was started anew between them."""
    if before is None or after is None or len(before.engines) != len(after.engines):
        return None
    pairs = list(zip(before.engines, after.engines, strict=True))
    if any(one.iterations > other.iterations for one, other in pairs):
        return None

    def moved(counter: Callable[[Engine], float]) -> list[int]:
        return [round(counter(other) - counter(one)) for one, other in pairs]

    return Counted(
        steps=max(moved(lambda engine: engine.iterations)),
        generated=sum(moved(lambda engine: engine.generation_tokens)),
        drafts=sum(moved(lambda engine: engine.drafts)),
        accepted=sum(moved(lambda engine: engine.accepted)),
        preempted=sum(moved(lambda engine: engine.preemptions)),
        cached=sum(moved(lambda engine: engine.prefix_hits)),
    )
