"""The confidence gate: when a step is in doubt, and that its replays end."""

import itertools
import math

import numpy as np
import pytest

from serving.experts.residency.gate import (
    Accept,
    Again,
    Confidence,
    Gate,
    GateRules,
    Promote,
    confidence,
    judge,
    placed,
)

RULES = GateRules()
DOUBT, SURE = Confidence(0.5, 0.1, 0), Confidence(0.9, 5.0, 0)


def test_confidence_is_that_of_the_least_row() -> None:
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.45, 0.35, 0.2]], np.float32))
    found = confidence(logits)
    assert found.probability == pytest.approx(0.45) and found.margin == pytest.approx(np.log(0.45 / 0.35), rel=1e-6)
    assert confidence(logits[:1]).probability == pytest.approx(0.7)
    many = np.random.default_rng(3).standard_normal((1, 5000), dtype=np.float32)
    exact = math.exp(float(many.max())) / math.fsum(math.exp(float(one)) for one in many[0])
    assert confidence(many).probability == pytest.approx(exact, rel=1e-12), "float64"
    assert confidence(logits + np.float32(80)).probability == pytest.approx(0.45, rel=1e-4)


def test_equal_and_masked_logits() -> None:
    assert confidence(np.zeros((1, 4), np.float32)) == Confidence(0.25, 0.0, 0)
    masked = np.array([[1.0, -np.inf, -np.inf]], np.float32)
    assert confidence(masked) == Confidence(1.0, np.inf, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_doubt(bad: float) -> None:
    logits = np.array([[5.0, 0.0], [bad, 0.0]], np.float32)
    assert confidence(logits) == Confidence(0.0, 0.0, 1)
    assert confidence(np.full((2, 3), -np.inf, np.float32)).undefined == 2
    assert isinstance(judge(Gate(), RULES, confidence(logits), np.arange(3))[1], Promote)


@pytest.mark.parametrize("shape", [(0, 4), (3, 1), (4,)])
def test_logits_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 1 x 2"):
        confidence(np.zeros(shape, np.float32))


def test_thresholds_themselves_are_doubt() -> None:
    for found, doubt in (
        (Confidence(0.60, 9.0, 0), True),
        (Confidence(0.61, 1.5, 0), True),
        (Confidence(0.61, 1.51, 0), False),
    ):
        assert isinstance(judge(Gate(), RULES, found, np.arange(1))[1], Promote) is doubt
    only_tau = GateRules(margin=None)
    assert judge(Gate(), only_tau, Confidence(0.61, 0.1, 0), np.arange(1))[1] == Accept("confident")
    only_margin = GateRules(tau=None)
    assert judge(Gate(), only_margin, Confidence(0.1, 1.6, 0), np.arange(1))[1] == Accept("confident")


def test_sixty_four_for_a_replay_and_the_hottest_first() -> None:
    _, action = judge(Gate(), RULES, DOUBT, np.arange(100)[::-1])
    assert isinstance(action, Promote) and action.cells.tolist() == list(range(99, 35, -1))


def test_every_way_that_a_step_can_go() -> None:
    """Whatever is found and finds room, at most three replays, each with at least one expert more."""
    for found in itertools.product([DOUBT, SURE], repeat=4):
        for room in itertools.product([0, 1, 2], repeat=4):
            state, plain, replays = Gate(), 5, 0
            for number in range(5):
                assert number < 4, "a fourth replay"
                state, action = judge(state, RULES, found[number], np.arange(plain))
                if isinstance(action, Accept):
                    break
                count = min(room[number], len(action.cells))
                state, after = placed(state, RULES, count)
                if isinstance(after, Accept):
                    assert after.why == "no room"
                    break
                assert isinstance(after, Again)
                plain -= count
                replays += 1
            assert state.replays == replays <= 3 and state.promoted >= replays


def test_ends_of_a_step() -> None:
    assert judge(Gate(), RULES, SURE, np.arange(3))[1] == Accept("confident")
    assert judge(Gate(3, 9), RULES, DOUBT, np.arange(3))[1] == Accept("replays used up")
    assert judge(Gate(), RULES, DOUBT, np.arange(0))[1] == Accept("nothing to promote")
    assert placed(Gate(), RULES, 0)[1] == Accept("no room")
    for state, count in ((Gate(), -1), (Gate(), 65), (Gate(3, 3), 1)):
        with pytest.raises(ValueError, match="expected up to 64 for 3"):
            placed(state, RULES, count)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"tau": 1.5}, "tau 1.5"),
        ({"tau": float("nan")}, "tau nan"),
        ({"margin": -1.0}, "margin -1.0"),
        ({"promotions": 0}, "0 promotions"),
        ({"replays": -1}, "-1 replays"),
    ],
)
def test_rules_that_are_none(arguments: dict[str, float], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        GateRules(**arguments)  # type: ignore[arg-type]
