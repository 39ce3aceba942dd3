import pytest

from serving.startup import made_up
from serving.startup.phases import PHASES, Tracker, message


def test_a_start_goes_through_every_phase_in_order() -> None:
    clock = made_up.Clock()
    tracker = Tracker(clock)
    seen = [tracker.phase.name]
    for line in made_up.START:
        clock.sleep(10)
        began = tracker.feed(line)
        assert began == (tracker.phase.name != seen[-1])
        seen.append(tracker.phase.name)
    assert seen == made_up.PHASES
    assert set(seen) == {phase.name for phase in PHASES}
    assert tracker.seconds["weights"] == 20 and tracker.seconds["memory"] == 20
    assert sum(tracker.seconds.values()) == 10 * len(made_up.START)


def test_bar_of_a_phase_goes_with_it() -> None:
    tracker = Tracker(made_up.Clock())
    shown = []
    for line in made_up.START:
        tracker.feed(line)
        shown.append((tracker.bar, tracker.share))
    assert shown[4] == ("Loading safetensors checkpoint shards 40/160", 0.25)
    assert shown[5] == ("", None)
    assert shown[6] == ("Capturing CUDA graphs (FULL) 2/2", 1.0)
    assert shown[9] == ("DeepGEMM warmup 300/600", 0.5)
    assert shown[11] == ("Capturing CUDA graphs (FULL) 4/8", 0.5)
    assert shown[12] == ("", None)


def test_second_copy_of_the_engine_takes_nothing_back() -> None:
    tracker = Tracker(made_up.Clock())
    for line in made_up.START[:8]:
        tracker.feed(line)
    assert not tracker.feed(made_up.logged("Worker_TP4", "model_runner.py:399", "Loading model from scratch..."))
    assert tracker.phase.name == "cache"


def test_quiet_is_since_the_last_line() -> None:
    clock = made_up.Clock()
    tracker = Tracker(clock)
    clock.sleep(5)
    assert (tracker.quiet, tracker.last) == (5, "")
    tracker.feed("  \r\n")
    assert tracker.quiet == 5
    tracker.feed("x")
    assert (tracker.quiet, tracker.last) == (0, "x")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(EngineCore_DP0 pid=1) ERROR 01-02 03:04:05 [a.py:1] ValueError: x\r", "ValueError: x"),
        ("\x1b[0;36m(W pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m01-02 03:04:05\x1b[0m \x1b[90m[a:1]\x1b[0m x", "x"),
        ("no prefix \x1b]0;title\x07", "no prefix \\x1b]0;title\\x07"),
    ],
)
def test_message_is_without_prefix_and_fit_for_a_terminal(line: str, said: str) -> None:
    assert message(line) == said
