"""What a study makes of outcomes, on traces small enough to reckon by hand."""

from dataclasses import replace

import numpy as np
import pytest

from serving.experts.residency.link import Link
from serving.experts.residency.pool import Kind
from serving.experts.residency.rules import OURS
from serving.experts.residency.study import Setting, study
from serving.experts.residency.trace import RoutingTrace

LINK = Link(1000.0, 0.5, 1.0)
SETTING = Setting("demand", Kind.BASE, 500, OURS, LINK, 5.0, 1.0, 0, False)


def alternating(steps: int, layers: int) -> RoutingTrace:
    """Steps of one row that ask for expert 0 of every layer, then for expert 1, and so on."""
    routed = np.broadcast_to((np.arange(steps, dtype=np.uint16) % 2)[:, None, None], (steps, layers, 1))
    return RoutingTrace(routed, np.arange(steps), 2, tuple(range(layers)))


@pytest.mark.parametrize("name", ["lru", "lfu", "lfu-aged", "ours"])
def test_every_step_misses(name: str) -> None:
    (found,) = study(alternating(10, 6), [(1,) * 6], [name], replace(SETTING, warm=4))
    assert (found.hit_rate, found.zero_miss, found.misses, found.bytes_a_step) == (0, 0, 6, 3000)
    assert found.replays == (1, 4), "three, and the pass layer by layer"
    assert found.step_seconds == (1 + 1 + 6.0, 1 + 4 + 6.0)


@pytest.mark.parametrize("name", ["lru", "lfu", "lfu-aged", "ours", "belady"])
def test_warm_steps_are_not_counted(name: str) -> None:
    cold, warm = (
        study(alternating(10, 2), [(2, 2)], [name], replace(SETTING, warm=steps))[0].hit_rate for steps in (0, 2)
    )
    assert (cold, warm) == (0.8, 1.0)


def test_belady_begins_where_counting_does() -> None:
    """What it holds then is free: one expert of two in one slot, so the first step hits."""
    for steps, hit in ((3, 1 / 7), (4, 1 / 6)):
        (found,) = study(alternating(10, 1), [(1,)], ["belady"], replace(SETTING, warm=steps))
        assert found.hit_rate == pytest.approx(hit) and found.misses == pytest.approx((9 - steps) / (10 - steps))


def test_ticks_and_passes_are_steps_of_the_link() -> None:
    assert (SETTING.steps_a_tick, SETTING.steps_a_pass) == (5, 1)
    assert replace(SETTING, tick=0.1, every=0.2).steps_a_tick == replace(SETTING, every=0.2).steps_a_pass == 1
