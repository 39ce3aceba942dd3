import pytest

from serving.check import timing
from serving.check.timing import Timing


def answer(sent: float, *parts: tuple[float, int], prompt: int = 0) -> Timing:
    return Timing(sent, tuple(time for time, _ in parts), tuple(count for _, count in parts), prompt, "", "length")


def test_one_stream_is_timed_from_its_first_part_to_its_last() -> None:
    found = timing.decode([answer(10.0, (11.0, 4), (11.5, 6), (12.0, 10), (13.0, 12))])
    assert (found.tokens, found.seconds, found.rate) == (8, 2.0, 4.0)
    assert found.firsts == (1.0,)
    assert found.gaps == (0.5, 0.5, 1.0)


def test_streams_count_while_all_of_them_are_decoded() -> None:
    early = answer(0.0, (1.0, 1), (2.0, 2), (3.0, 3), (4.0, 4))
    late = answer(0.0, (2.0, 1), (3.0, 3), (4.0, 5), (5.0, 9))
    found = timing.decode([early, late])
    # From 2 to 4: two tokens of one, four of the other.
    assert (found.tokens, found.seconds, found.rate) == (6, 2.0, 3.0)
    assert found.firsts == (1.0, 2.0)


def test_streams_that_follow_each_other_have_no_rate() -> None:
    found = timing.decode([answer(0.0, (1.0, 1), (2.0, 9)), answer(0.0, (3.0, 1), (4.0, 9))])
    assert (found.rate, found.tokens, found.seconds) == (0.0, 0, 0.0)


def test_prompts_are_timed_until_the_last_of_them_is_read() -> None:
    assert timing.prompt_rate([answer(1.0, (2.0, 1), prompt=300)]) == 300.0
    both = [answer(1.0, (2.0, 1), prompt=300), answer(1.5, (4.0, 1), prompt=600)]
    assert timing.prompt_rate(both) == 300.0


@pytest.mark.parametrize(
    ("values", "part", "found"),
    [([], 0.5, 0), ([7], 0.99, 7), ([1, 2, 3], 0.5, 2), ([1, 2, 3, 4], 0.5, 2), ([*range(1, 101)], 0.99, 99)],
)
def test_share_is_the_nearest_rank(values: list[float], part: float, found: float) -> None:
    assert timing.share(values, part) == found
