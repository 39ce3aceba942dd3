from serving.probe.metrics import Engine, Progress
from serving.watch.pace import Pace


def at(tokens: int = 0, full: float = 0.0, running: int = 1, prompt: int = 0) -> Progress:
    return Progress((Engine(running=running, prompt_tokens=prompt, generation_tokens=tokens, kv_cache_usage=full),))


def moves(*looks: Progress | None, run: str = "1") -> list[bool]:
    pace = Pace()
    return [pace.moved(run, look) for look in looks]


def test_a_token_is_progress() -> None:
    assert moves(at(1), at(2), at(2), at(2, prompt=1), at(2, prompt=1)) == [False, True, False, True, False]


def test_a_long_prompt_fills_the_cache() -> None:
    assert moves(at(1, 0.1), at(1, 0.2), at(1, 0.3), at(1, 0.3)) == [False, True, True, False]


def test_blocks_that_come_and_go_are_no_progress() -> None:
    assert moves(at(1, 0.1), at(1, 0.2), *[at(1, 0.1), at(1, 0.2)] * 5) == [False, True, *[False] * 10]


def test_a_prompt_after_one_that_was_given_up_is_progress() -> None:
    gone = at(1, 0.0, running=0)
    assert moves(at(1, 0.9), gone, at(1, 0.1), at(1, 0.2)) == [False, False, True, True]
    assert moves(at(1, 0.9), at(2, 0.1), at(2, 0.2)) == [False, True, True]


def test_requests_that_pile_up_are_no_progress() -> None:
    assert moves(*[at(1, 0.5, running=count) for count in range(1, 9)]) == [False] * 8


def test_without_figures_nothing_is_known() -> None:
    assert moves(None, at(1), None, at(1), None, at(2)) == [False, False, False, False, False, True]


def test_another_run_begins_anew() -> None:
    pace = Pace()
    assert [pace.moved(run, at(tokens)) for run, tokens in [("1", 9), ("2", 1), ("2", 2)]] == [False, False, True]


def test_an_engine_that_gets_on_is_enough() -> None:
    two = Engine(generation_tokens=7)
    assert moves(Progress((two, Engine())), Progress((two, Engine(generation_tokens=1)))) == [False, True]
