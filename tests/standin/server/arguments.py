"""The arguments of `vllm serve` that the stand-in acts on; it takes any other."""

from collections.abc import Sequence
from dataclasses import dataclass

_DEFAULT_LENGTH = 8192


@dataclass(frozen=True)
class Arguments:
    """What it was started with.

    Attributes:
        model: folder of the checkpoint.
        name: as requests have it; one for another model is answered with 404.
        host: address to listen at.
        port: TCP port.
        util: --gpu-memory-utilization.
        max_model_len: tokens of a prompt and its answer together.
        spec_tokens: drafted in a step; 0 for no speculation.
        headless: a host of several that answers no requests.
        words: all of them.
    """

    model: str
    name: str
    host: str
    port: int
    util: float
    max_model_len: int
    spec_tokens: int
    headless: bool
    words: tuple[str, ...]


def parse(words: Sequence[str]) -> Arguments:
    """Reads what follows `vllm serve`: the model, then --FLAG, --FLAG=VALUE or --FLAG VALUE."""
    flags: dict[str, str] = {}
    places: list[str] = []
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            flags[name] = value
            name = "" if equals else name
        elif name:
            flags[name], name = word, ""
        else:
            places.append(word)
    model = places[0] if places else flags.get("--model", "/model")
    speculation = flags.get("--speculative-config", "")
    number = speculation.partition('"num_speculative_tokens":')[2].lstrip()
    return Arguments(
        model=model,
        name=flags.get("--served-model-name") or model,
        host=flags.get("--host", "0.0.0.0"),
        port=int(flags.get("--port", "8000")),
        util=float(flags.get("--gpu-memory-utilization", "0.92")),
        max_model_len=int(flags.get("--max-model-len", _DEFAULT_LENGTH)),
        spec_tokens=int(number[:1]) if number[:1].isdigit() else 0,
        headless="--headless" in flags,
        words=tuple(words),
    )
