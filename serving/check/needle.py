"""Whether one sentence is found in a long text, wherever in it."""

import random
import re
from collections.abc import Iterator
from functools import partial

from serving.check import talk
from serving.check.result import Check, Figure, Result
from serving.check.subject import Subject
from serving.check.texts import Texts

DEPTHS = (10, 50, 90)
_ANSWER = 64
_PLACES = ("Velmar", "Tarnholm", "Osterby", "Quillan", "Brandsey", "Merrow", "Haldane", "Castell")


def needle(subject: Subject, texts: Texts, tokens: int, depth: int, salt: str) -> Result:
    """Hides a number at `depth` percent of a text of `tokens` tokens and asks for it. Raises ClientError.

    Texts of the same length and `salt` are the same before the sentence, so that the server need not read that again.
    """
    name = _name(tokens, depth)
    if tokens > texts.room(_ANSWER):
        longest = subject.model.longest
        return Result(name, "skipped", f"the server's longest context is {longest or 'not known, and may be shorter'}")
    place, number = _hidden(tokens, depth)
    sentences = texts.sentences("haystack", tokens)
    sentences.insert(len(sentences) * depth // 100, f"The access number of the lighthouse at {place} is {number}.")
    question = f"What is the access number of the lighthouse at {place}? Answer with the number alone."
    body = talk.request(subject.model, f"{' '.join(sentences)}\n\n{question}", _ANSWER, cache_salt=salt)
    timing = talk.stream(subject.client, body)
    figures = (Figure("prompt tokens", timing.prompt_tokens, "tokens"), Figure("first token", timing.first, "s"))
    told = f"of {timing.prompt_tokens:,} prompt tokens, first token after {timing.first:.2f} s"
    if number in re.findall(r"\d+", timing.text.replace(",", "")):
        return Result(name, "pass", f"found, {told}", figures=figures)
    said = subject.client.clean(timing.text, 80) or f"nothing ({subject.client.clean(timing.ended, 20)})"
    advice = ("attention, the indexer or the KV cache loses tokens: VLLM_MOET_SELFTEST=1 tests the image's kernels",)
    return Result(name, "fail", f"expected {number}, answered {said}; {told}", advice, figures)


def checks(subject: Subject, texts: Texts) -> Iterator[Check]:
    """The checks: every length at every depth."""
    for tokens in subject.sizes.needles:
        salt = talk.salt()
        for depth in DEPTHS:
            yield Check(_name(tokens, depth), partial(needle, subject, texts, tokens, depth, salt))


def _name(tokens: int, depth: int) -> str:
    return f"needle {tokens:,} at {depth} %"


def _hidden(tokens: int, depth: int) -> tuple[str, str]:
    """A place and a number of its own for each text, so that no answer fits another question."""
    chance = random.Random(f"{tokens} {depth}")
    return chance.choice(_PLACES), str(chance.randrange(1_000_000, 10_000_000))
