"""Text as tokens: pieces of at most six letters; and words that follow from a seed."""

import hashlib
import re
from collections.abc import Iterator

_PIECE = re.compile(r"\s?\w{1,6}|[^\w\s]|\s")
_TEXT = (
    "a model reads the prompt and then writes one token after another until the answer ends "
    "while memory moves weights over the bus and every step costs the same"
)
_WORDS = re.findall(r"[a-z]{1,6}", _TEXT)


def count(text: str) -> int:
    """How many tokens a text has."""
    return sum(1 for _ in _PIECE.finditer(text))


def split(text: str) -> list[str]:
    """A text as its tokens, which joined are the text."""
    return _PIECE.findall(text)


def prose(seed: str) -> Iterator[str]:
    """Tokens without end, the same for the same seed."""
    state = hashlib.sha256(seed.encode()).digest()
    while True:
        for byte in state:
            yield f" {_WORDS[byte % len(_WORDS)]}"
        state = hashlib.sha256(state).digest()
