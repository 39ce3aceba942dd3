"""What counts as right, and what is said of what is not."""

import math
from typing import Any

import numpy as np
import pytest

from kernels.selftest.comparison import Array, Comparison

NAN, INF = float("nan"), float("inf")


def array(*values: float) -> Array:
    return np.array(values)


@pytest.mark.parametrize(
    ("found", "expected", "share"),
    [
        ([1.0, 2.5], [1.0, 2.0], 0.5),
        ([1.0, 4.0], [1.0, 2.0], 2.0),
        ([INF, NAN], [INF, NAN], 0.0),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, NAN], INF),
        ([-INF, 2.0], [INF, 2.0], INF),
        ([], [], 0.0),
    ],
)
def test_share_of_the_bound(found: list[float], expected: list[float], share: float) -> None:
    comparison = Comparison("it", array(*found), array(*expected), np.ones(len(found)))
    assert comparison.share == share
    assert (comparison.problem is None) == (share <= 1)


def test_no_room_where_the_bound_is_nothing() -> None:
    assert Comparison("it", array(1.0), array(1.0), array(0.0)).problem is None
    assert math.isinf(Comparison("it", array(1.0), array(1.5), array(0.0)).share)


@pytest.mark.parametrize(
    ("found", "expected", "bound", "problem"),
    [
        (array(1, 2, 4), array(1, 2, 3), None, "it: 1 of 3 values differ; expected none to"),
        (array(1, 2), array(1, 2, 3), None, "it: shape is [2]; expected [3]"),
        (array(1, 2), array(1, 2, 3), array(1, 1, 1), "it: shape is [2]; expected [3]"),
        (array(1, 5), array(1, 2), array(1, 1), "it: error is 3 times its bound"),
        (array(1, NAN), array(1, 2), array(1, 1), "it: error is inf times its bound"),
        (array(1, 2), array(1, 2), None, None),
    ],
)
def test_problem(found: Array, expected: Array, bound: Any, problem: str | None) -> None:
    assert Comparison("it", found, expected, bound).problem == problem
