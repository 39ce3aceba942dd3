import random

import pytest

from releases.bisect.search import Bounds, search
from releases.bisect.verdict import Verdict


@pytest.mark.parametrize("count", range(1, 18))
def test_finds_the_change_in_as_few_trials_as_can_be(count: int) -> None:
    for culprit in range(1, count + 1):
        asked: list[int] = []

        def judge(state: int, culprit: int = culprit, asked: list[int] = asked) -> Verdict:
            asked.append(state)
            return Verdict.BAD if state >= culprit else Verdict.GOOD

        assert search(0, count, judge) == Bounds(culprit - 1, culprit)
        assert len(asked) <= (count - 1).bit_length()
        assert len(set(asked)) == len(asked)


def test_states_that_cannot_be_judged_stay_between_the_bounds() -> None:
    rolled = random.Random(4)
    for _ in range(300):
        count = rolled.randint(1, 12)
        culprit = rolled.randint(1, count)
        dark = {state for state in range(1, count) if rolled.random() < 0.4}

        def judge(state: int, culprit: int = culprit, dark: set[int] = dark) -> Verdict:
            if state in dark:
                return Verdict.UNKNOWN
            return Verdict.BAD if state >= culprit else Verdict.GOOD

        found = search(0, count, judge)
        assert found.good < culprit <= found.bad
        assert set(range(found.good + 1, found.bad)) <= dark
