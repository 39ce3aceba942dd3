"""What the bench knows of a way to sum over the ranks, and how it makes sure that it sums."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

# One sum; returns where it is.
Step = Callable[[], torch.Tensor]

_PERIOD = 17


class Meeting(Protocol):
    """What of a ranks.Rank is needed to compare sums."""

    world: int

    def gather(self, value: Any) -> list[Any]:
        """Gives each rank what each passed."""


def nothing() -> None:
    """What most have to do once a graph has been captured."""


@dataclass(frozen=True)
class Way:
    """A way to sum.

    prepare: gets a rank's part, a bf16 vector, and returns a step that sums it; None where these cards cannot. All
        ranks call it, and the step, in the same order.
    captured: to be called by all ranks after a step was captured in a graph, ahead of the first replay.
    in_place: the step overwrites what it sums, so that a second one sums something else.
    """

    name: str
    prepare: Callable[[torch.Tensor], Step | None]
    captured: Callable[[], None] = nothing
    in_place: bool = False


def part(rank: int, count: int, device: torch.device) -> torch.Tensor:
    """What a rank adds, in bf16: integers below 17, whose sums over eight ranks are exact in any order."""
    return ((torch.arange(count, device=device) + 3 * rank) % _PERIOD).bfloat16()


def total(world: int, count: int, device: torch.device) -> torch.Tensor:
    """The sum of all ranks' parts.

    >>> total(2, 4, torch.device("cpu")).tolist()
    [3.0, 5.0, 7.0, 9.0]
    """
    return torch.stack([part(rank, count, device) for rank in range(world)]).sum(dim=0)


def require_right(me: Meeting, found: torch.Tensor, what: str) -> None:
    """Raises ArithmeticError on every rank where `found` is not total() on one of them; `what` names it."""
    wrong = int((found != total(me.world, found.numel(), found.device)).sum().item())
    if any(counts := me.gather(wrong)):
        raise ArithmeticError(f"{what}: wrong sums, of {found.numel()} a rank: {counts}")
