"""Long made-up texts of about as many tokens as asked for."""

from functools import cached_property

from serving.check import prompts
from serving.check.client import Client, RefusedError
from serving.check.talk import CHAT, Model, request

_SAMPLE_CHARACTERS = 8000
# Counts are predicted from a sample, and a chat template adds some.
_MARGIN = 0.05
_TEMPLATE = 256
_UNKNOWN_LENGTH = 32768


class Texts:
    """Makes texts for one model, whose tokens it counts once; where that fails, any method raises ClientError."""

    def __init__(self, client: Client, model: Model) -> None:
        self._client, self._model = client, model

    @cached_property
    def _characters(self) -> float:
        """Characters of a token."""
        sample = " ".join(prompts.passage("sample", _SAMPLE_CHARACTERS))
        return len(sample) / _count(self._client, self._model, sample)

    def room(self, answer: int) -> int:
        """The most tokens that a text may have when an answer of `answer` tokens is to follow; 0 for none."""
        return max(0, int(((self._model.longest or _UNKNOWN_LENGTH) - answer - _TEMPLATE) * (1 - _MARGIN)))

    def sentences(self, seed: str, tokens: int) -> list[str]:
        """Whole sentences of about `tokens` tokens together."""
        return prompts.passage(seed, round(tokens * self._characters))

    def of(self, seed: str, tokens: int) -> str:
        """A text of about `tokens` tokens."""
        return " ".join(self.sentences(seed, tokens))


def _count(client: Client, model: Model, text: str) -> int:
    """Tokens of a text: of /tokenize, else as a request's usage has them."""
    try:
        count = client.ask("/tokenize", {"model": model.name, "prompt": text}).get("count")
    except RefusedError:
        count = None
    if not isinstance(count, int) or count < 1:
        usage = client.ask(CHAT, request(model, text, 1)).get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(count, int) or count < 1:
        raise RefusedError(0, "neither /tokenize nor usage.prompt_tokens counts tokens")
    return count
