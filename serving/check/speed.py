"""How fast answers are decoded and prompts are read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from serving.check import cards, counters, published, talk, timing
from serving.check.advice import Evidence, few_accepted, why_slow
from serving.check.prompts import code, prose
from serving.check.published import Line
from serving.check.result import Check, Figure, Result
from serving.check.subject import Subject
from serving.check.texts import Texts
from serving.check.timing import Timing

KINDS: dict[str, Callable[[int], str]] = {"prose": prose, "code": code}
_MILLI = 1000
# Fewer tokens say little; an answer of them is one that broke off.
_FEW = 32
_WARM = 64


@dataclass(frozen=True)
class _Measured:
    """What streams did, and what was seen meanwhile."""

    timings: list[Timing]
    evidence: Evidence


def warm_up(subject: Subject) -> Result:
    """Has the server compute a little, alone and side by side, so that nothing is timed that is done once only.

    Raises ClientError.
    """
    alone = talk.stream(subject.client, talk.request(subject.model, prose(0), _WARM))
    bodies = [talk.request(subject.model, code(number), _WARM) for number in range(subject.sizes.streams)]
    last = max(one.first for one in talk.streams(subject.client, bodies))
    return Result("warm-up", "pass", f"first token after {alone.first:.2f} s, of {len(bodies)} after {last:.2f} s")


def decode(subject: Subject, kind: str, streams: int) -> Result:
    """Decodes answers of a kind ("prose", "code"), `streams` at once. Raises ClientError."""
    name = f"decode {kind} x{streams}"
    # Whatever ends an answer early would leave the streams of unequal length.
    bodies = [
        talk.request(subject.model, KINDS[kind](number), subject.sizes.answer, ignore_eos=True)
        for number in range(streams)
    ]
    measured = _measure(subject, bodies)
    found = timing.decode(measured.timings)
    if found.tokens < _FEW:
        if streams > 1:
            what = f"{streams} streams were never decoded side by side for long: MAX_NUM_SEQS has them wait; --streams"
            return Result(name, "skipped", what)
        ended = subject.client.clean(measured.timings[0].ended, 20)
        return Result(name, "fail", f"the answer ended after {measured.timings[0].tokens[-1]} tokens ({ended})")
    steps, how = _steps(measured)
    figures = (
        Figure("decode", found.rate, "tokens/s"),
        Figure("steps", steps, "steps/s"),
        Figure("first token", max(found.firsts), "s"),
        Figure("between parts, median", timing.share(found.gaps, 0.5) * _MILLI, "ms"),
        Figure("between parts, p99", timing.share(found.gaps, 0.99) * _MILLI, "ms"),
    )
    first = f"{'first token' if streams == 1 else 'first tokens of all'} after {max(found.firsts):.2f} s"
    gaps = f"between parts {figures[3].value:.1f} ms (median), {figures[4].value:.1f} ms (p99)"
    what = f"{found.rate:,.1f} tokens/s at {steps:,.1f} steps/s ({how}); {first}; {gaps}"
    return _compared(subject, name, what, figures, measured.evidence)


def prompt(subject: Subject, texts: Texts, streams: int) -> Result:
    """Reads prompts that the server has not seen before, `streams` at once. Raises ClientError."""
    name = f"prompt x{streams}"
    size = min(subject.sizes.prompt, texts.room(1))
    if size < _FEW:
        return Result(name, "skipped", f"the server's longest context, {subject.model.longest} tokens, has no room")
    # The answer's one token is the sign that the prompt is read. Its salt keeps it out of every cache.
    bodies = [
        talk.request(subject.model, texts.of(f"prompt {number}", size), 1, cache_salt=talk.salt())
        for number in range(streams)
    ]
    measured = _measure(subject, bodies)
    rate, tokens = timing.prompt_rate(measured.timings), sum(one.prompt_tokens for one in measured.timings)
    counted = measured.evidence.counted
    if counted and counted.cached > tokens // 10:
        return Result(name, "fail", f"{counted.cached:,} of {tokens:,} prompt tokens came from the prefix cache")
    seconds = tokens / rate
    figures = (Figure("prompt", rate, "tokens/s"), Figure("time", seconds, "s"))
    what = f"{rate:,.0f} tokens/s: {tokens:,} tokens in {seconds:.2f} s"
    return _compared(subject, name, what, figures, measured.evidence)


def checks(subject: Subject, texts: Texts, groups: Sequence[str]) -> Iterator[Check]:
    """The checks of the groups "decode" and "prompt"."""
    counts = sorted({1, subject.sizes.streams})
    if "decode" in groups or "prompt" in groups:
        yield Check("warm-up", partial(warm_up, subject))
    if "decode" in groups:
        for count in counts:
            for kind in KINDS:
                yield Check(f"decode {kind} x{count}", partial(decode, subject, kind, count))
    if "prompt" in groups:
        for count in counts:
            yield Check(f"prompt x{count}", partial(prompt, subject, texts, count))


def _measure(subject: Subject, bodies: list[dict[str, Any]]) -> _Measured:
    before = counters.look(subject.client)
    with cards.watched(subject.host) as watch:
        timings = talk.streams(subject.client, bodies)
    counted = counters.between(before, counters.look(subject.client))
    own = sum(one.tokens[-1] for one in timings)
    return _Measured(timings, Evidence(subject.target, watch, counted, own))


def _steps(measured: _Measured) -> tuple[float, str]:
    """Steps a second, and in words where that comes from."""
    timings, counted = measured.timings, measured.evidence.counted
    seconds = max(one.times[-1] for one in timings) - min(one.times[0] for one in timings)
    if counted and counted.steps and not measured.evidence.others:
        # The first step's end is where the time begins.
        return (counted.steps - 1) / seconds, f"{counted.generated / counted.steps:.2f} tokens a step"
    reason = "others use the server" if counted and counted.steps else "no counters in /metrics"
    return max(one.parts for one in timings) / seconds, f"at least, by parts of answers: {reason}"


def _compared(subject: Subject, name: str, what: str, figures: tuple[Figure, ...], evidence: Evidence) -> Result:
    """A result beside what others published, with advice where it is low."""
    if subject.line is None:
        return Result(name, "pass", what, figures=figures)
    by_name = {figure.name: figure for figure in figures}
    beside, low = list[str](), set[str]()
    for one in subject.line.of(name):
        beside.append(published.words(one, by_name[one.figure], subject.line))
        if published.low(one, by_name[one.figure]):
            low.add(one.figure)
    if not low:
        return Result(name, "pass", what, figures=figures, beside=tuple(beside))
    advice = few_accepted(evidence) if low == {"decode"} else why_slow(evidence, speculation="steps" in low)
    return Result(name, "low", what, (*advice, *_unlike(subject.line, evidence)), figures, tuple(beside))


def _unlike(line: Line, evidence: Evidence) -> list[str]:
    """Says where the published figures are of other cards."""
    found = evidence.watch.cards
    if not found or (len(found) >= line.cards and all(line.card in card.name for card in found)):
        return []
    names = ", ".join(sorted({card.name for card in found}))
    return [f"this host has other cards: {len(found)}x {names}"]
