"""What can be seen of the operator without a GPU: that it loads, is registered, and says what it cannot take."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.p2p_allreduce import op
from kernels.p2p_allreduce.op import Cause, Failure


def floats(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape)


def misaligned() -> torch.Tensor:
    return floats(65)[1:]


MISUSES: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("x: dtype is float64; expected bfloat16 or float16 or float32", lambda: {"x": floats(64).double()}),
    ("x: strides are [1, 8] for shape [8, 8]; expected a contiguous tensor", lambda: {"x": floats(8, 8).t()}),
    ("x: has 0 bytes; expected a multiple of 16 up to 524288", lambda: {"x": floats(0)}),
    ("x: has 12 bytes; expected a multiple of 16 up to 524288", lambda: {"x": floats(3)}),
    ("x: has 524304 bytes; expected a multiple of 16 up to 524288", lambda: {"x": floats(131076)}),
    ("x: data begins at an address that is no multiple of 16 bytes", lambda: {"x": misaligned()}),
    ("ll: x has 131088 bytes; expected up to 131072", lambda: {"x": floats(32772), "ll": True}),
    ("out: dtype is bfloat16; expected float32", lambda: {"out": floats(64).bfloat16()}),
    ("out: shape is [60]; expected [64], as x has", lambda: {"out": floats(60)}),
    ("out: data begins at an address that is no multiple of 16 bytes", lambda: {"out": misaligned()}),
    ("number of workspaces: is 1; expected 2 to 8 ranks", lambda: {"workspaces": [16]}),
    ("number of workspaces: is 9; expected 2 to 8 ranks", lambda: {"workspaces": [16] * 9}),
    ("rank: is 2; expected 0 to 1", lambda: {"rank": 2}),
    ("rank: is -1; expected 0 to 1", lambda: {"rank": -1}),
    ("workspaces: one is at address 0; expected what p2p_open returned", lambda: {"workspaces": [16, 0]}),
    ("deadline_ns: is 0; expected more than 0", lambda: {"deadline_ns": 0}),
    ("x: is not on a CUDA device; expected one", dict),
]


@pytest.mark.parametrize(("message", "change"), MISUSES, ids=[message for message, _ in MISUSES])
def test_misuse(message: str, change: Callable[[], dict[str, Any]]) -> None:
    arguments: dict[str, Any] = {"x": floats(64), "out": floats(64), "status": 16}
    arguments |= {"workspaces": [16, 32], "rank": 0, "deadline_ns": 1} | change()
    with pytest.raises(RuntimeError) as caught:
        op.p2p_allreduce(**arguments)
    assert str(caught.value).startswith(f"p2p_allreduce: {message}")


def test_schema() -> None:
    assert str(torch.ops.moet.p2p_allreduce.default._schema) == (
        "moet::p2p_allreduce(Tensor x, Tensor(a!) out, int status, int[] workspaces, int rank, int deadline_ns, "
        "bool dependent=False, bool ll=False) -> ()"
    )


def test_meta() -> None:
    x = floats(64).to("meta")
    op.p2p_allreduce(x, torch.empty_like(x), 16, [16, 32], 0, 1)
    with pytest.raises(RuntimeError, match="out: expected the shape of x"):
        op.p2p_allreduce(x, floats(32).to("meta"), 16, [16, 32], 0, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU")
def test_memory_without_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="p2p_allocate: world: is 9; expected 2 to 8 ranks"):
        torch.ops.moet.p2p_allocate(0, 9)
    with pytest.raises(RuntimeError, match="p2p_open: handle: has 3 words; expected 8"):
        torch.ops.moet.p2p_open(0, [1, 2, 3])


def test_failures_are_read_as_the_kernel_writes_them() -> None:
    assert Failure.of(0) is None
    found = Failure.of(2**40 << 16 | 7 << 8 | 1)
    assert found == Failure(Cause.DEADLINE, 7, 2**40)
    assert re.fullmatch(r"rank 7 did not arrive within the deadline, in round \d+", str(found))


@pytest.mark.parametrize(
    ("x", "fit"),
    [
        (floats(64), True),
        (floats(131072).half(), True),
        (floats(131076), False),
        (floats(3), False),
        (floats(0), False),
        (misaligned(), False),
        (floats(8, 8).t(), False),
        (floats(64).double(), False),
    ],
)
def test_fits(x: torch.Tensor, fit: bool) -> None:
    assert op.fits(x) == fit
