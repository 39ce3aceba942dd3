from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.dispatch import all_reduce
from kernels.p2p_allreduce import op
from kernels.p2p_allreduce.communicator import PeerMemoryError

CARD = torch.device("cuda", 1)
SERVED = {
    "ranks": 4,
    "sm120": True,
    "batch_invariant": False,
    "microbatches": False,
    "stages": 1,
    "graphs": True,
    "generates": True,
}


@pytest.mark.parametrize("ranks", range(2, 9))
def test_what_is_served_is_not_refused(ranks: int) -> None:
    assert all_reduce.refusal(**(SERVED | {"ranks": ranks})) is None  # type: ignore[arg-type]


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("the device is not of compute capability 12.0", {"sm120": False}),
    ("1 ranks sum, not 2 to 8", {"ranks": 1}),
    ("9 ranks sum, not 2 to 8", {"ranks": 9}),
    ("batch invariance is asked for, which larger tensors would break", {"batch_invariant": True}),
    ("microbatches sum on two streams at the same time", {"microbatches": True}),
    ("the pipeline has 2 stages", {"stages": 2}),
    ("no step runs as a CUDA graph", {"graphs": False}),
    ("the model does not generate", {"generates": False}),
]


@pytest.mark.parametrize(("reason", "change"), REFUSALS)
def test_what_is_refused_is_named(reason: str, change: dict[str, Any]) -> None:
    assert all_reduce.refusal(**(SERVED | change)) == reason


class Peers:
    """In the place of PeerAllReduce."""

    def __init__(self, rank: int, device: torch.device, gather: Any) -> None:
        assert (rank, device) == (2, CARD)
        self.seen: list[tuple[torch.Tensor, dict[str, Any]]] = []
        self.closed: list[bool] = []

    def all_reduce(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        self.seen.append((x, options))
        return x * 4

    def close(self, peers_are_there: bool = True) -> None:
        self.closed.append(peers_are_there)
        if len(self.closed) > 1:
            raise RuntimeError("p2p_close: the card has failed")


class Capture:
    """What CUDA says of a capture."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on, self.stream = True, 7
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.on)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=self.stream))


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Capture:
    return Capture(monkeypatch)


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> all_reduce.Sums:
    monkeypatch.setattr(all_reduce, "PeerAllReduce", Peers)
    return all_reduce.Sums(2, CARD, lambda value: [value] * 4, None)


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize(
    ("x", "takes"),
    [
        (bf16(1, 5120), True),
        (bf16(51, 5120), True),
        (bf16(52, 5120), False),
        (bf16(512, 512), True),
        (torch.zeros(131072), True),
        (torch.zeros(131076), False),
        (torch.zeros(8, dtype=torch.float16), True),
        (bf16(7), False),
        (bf16(0, 5120), False),
        (torch.zeros(16, dtype=torch.float64), False),
        (torch.zeros(16, dtype=torch.int32), False),
        # Ranks may differ in where a tensor begins, and in what lies between its rows.
        (bf16(5121)[1:], True),
        (bf16(4, 6144)[:, :5120], True),
        (bf16(5120, 4).t(), True),
    ],
)
def test_type_and_size_alone_decide(sums: all_reduce.Sums, x: torch.Tensor, takes: bool) -> None:
    assert sums.takes(x) is takes


def test_what_is_no_graph_is_not_taken(sums: all_reduce.Sums, capture: Capture) -> None:
    capture.on = False
    assert not sums.takes(bf16(1, 5120))


def test_a_graph_sums_on_one_stream(sums: all_reduce.Sums, capture: Capture) -> None:
    x = bf16(1, 5120)
    assert [sums.takes(x), sums.is_beside()] == [True, False]
    capture.stream = 8
    assert [sums.takes(x), sums.is_beside()] == [True, True]
    capture.stream = 7
    assert [sums.takes(x), sums.is_beside()] == [True, False]
    # A batch without a graph, and the next graph is captured on another stream.
    capture.on = False
    assert not sums.takes(x)
    capture.on, capture.stream = True, 8
    assert [sums.takes(x), sums.is_beside()] == [True, False]


@pytest.mark.parametrize("x", [bf16(5121)[1:], bf16(4, 6144)[:, :5120], bf16(5120, 4).t(), bf16(4, 5120)])
def test_the_operator_gets_what_fits_it(sums: all_reduce.Sums, x: torch.Tensor) -> None:
    x.normal_()
    assert torch.equal(sums.all_reduce(x), x * 4)
    given, options = sums._peers.seen[0]  # type: ignore[attr-defined]
    assert op.fits(given) and options == {"dependent": True}
    assert (given is x) == op.fits(x)


@pytest.mark.parametrize(
    ("mine", "others", "said"),
    [
        ("no cards", ["no cards"] * 4, "no cards"),
        (None, [None, "no cards", None, "no luck"], "rank 1: no cards; rank 3: no luck"),
        ("no cards", [None, None, "no cards", None], "rank 2: no cards"),
    ],
)
def test_one_rank_s_refusal_is_every_rank_s(mine: str | None, others: list[str | None], said: str) -> None:
    with pytest.raises(all_reduce.RefusedError) as caught:
        all_reduce.Sums(2, CARD, lambda value: others, mine)
    assert str(caught.value) == said


def test_peer_memory_that_does_not_work_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise PeerMemoryError("p2p_allreduce: rank 1: no such luck")

    monkeypatch.setattr(all_reduce, "PeerAllReduce", fails)
    with pytest.raises(all_reduce.RefusedError, match="rank 1: no such luck"):
        all_reduce.Sums(2, CARD, lambda value: [value] * 4, None)


def test_closing_waits_for_nobody_and_outlives_a_card(sums: all_reduce.Sums) -> None:
    sums.close()
    sums.close()
    assert sums._peers.closed == [False, False]  # type: ignore[attr-defined]
