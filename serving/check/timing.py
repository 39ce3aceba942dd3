"""When the tokens of streamed answers came, and the rates that follow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """One streamed answer. Times are of time.monotonic(), in seconds.

    Attributes:
        sent: when the request was sent.
        times: when each part with new tokens came. vLLM sends one part for each step of the engine, of several tokens
            where it speculates, unless parts wait for their reader and are merged.
        tokens: how many tokens of the answer there were at each of `times`.
        prompt_tokens: of the prompt, as the server counts them.
        text: the answer.
        ended: why it ended, as the server says: "stop", "length", "tool_calls".
    """

    sent: float
    times: tuple[float, ...]
    tokens: tuple[int, ...]
    prompt_tokens: int
    text: str
    ended: str

    @property
    def first(self) -> float:
        """Seconds from the request to the first part with tokens."""
        return self.times[0] - self.sent

    @property
    def parts(self) -> int:
        """Parts after the first one."""
        return len(self.times) - 1

    @property
    def seconds(self) -> float:
        """From the first part to the last."""
        return self.times[-1] - self.times[0]

    def tokens_in(self, start: float, end: float) -> int:
        """Tokens that came after `start`, until `end`."""
        return self._until(end) - self._until(start)

    def _until(self, moment: float) -> int:
        return max((count for time, count in zip(self.times, self.tokens, strict=True) if time <= moment), default=0)


@dataclass(frozen=True)
class Decode:
    """What streams that were decoded side by side did.

    Attributes:
        rate: tokens a second of all streams together, in the time in which all of them were decoded; 0 where there was
            no such time.
        seconds: that time.
        tokens: what came in it.
        firsts: each stream's seconds to its first token.
        gaps: seconds between the parts of each stream, sorted.
    """

    rate: float
    seconds: float
    tokens: int
    firsts: tuple[float, ...]
    gaps: tuple[float, ...]


def decode(timings: Sequence[Timing]) -> Decode:
    """Rates of answers that were asked for at the same time."""
    start = max(one.times[0] for one in timings)
    end = min(one.times[-1] for one in timings)
    tokens = sum(one.tokens_in(start, end) for one in timings) if end > start else 0
    gaps = [after - before for one in timings for before, after in zip(one.times, one.times[1:], strict=False)]
    return Decode(
        rate=tokens / (end - start) if end > start else 0.0,
        seconds=max(end - start, 0.0),
        tokens=tokens,
        firsts=tuple(one.first for one in timings),
        gaps=tuple(sorted(gaps)),
    )


def prompt_rate(timings: Sequence[Timing]) -> float:
    """Prompt tokens a second: all of them, from the first request to the last stream's first token."""
    seconds = max(one.times[0] for one in timings) - min(one.sent for one in timings)
    return sum(one.prompt_tokens for one in timings) / seconds


def share(ordered: Sequence[float], part: float) -> float:
    """The value that `part` (0 to 1) of sorted values do not exceed: the nearest rank; of none, 0."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
