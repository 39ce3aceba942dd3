"""The shape of a pool of slots: what a slot holds, whose cells it serves, and how small it may be.

A cell is one routed expert of one layer; its number is `layer * experts + expert`.
"""

from dataclasses import dataclass
from enum import Enum

_BLOCK = 32


class PoolError(ValueError):
    """A pool that cannot do what it is for; the message says which term breaks."""


class Kind(Enum):
    """What a slot holds of an expert."""

    BASE = "base"
    QUINTAL = "quintal"
    FP4 = "fp4"
    FP4_SCALED = "fp4-scaled"


def slot_bytes(kind: Kind, hidden: int, intermediate: int) -> int:
    """Bytes of one slot: the three matrices of an expert, hidden x intermediate each.

    BASE has 2-bit codes and the UE8M0 scales of blocks of 32; QUINTAL the 2.5-bit digits that make its codes FP4; FP4
    the 4-bit codes, whose scales stay in the base; FP4_SCALED those with scales of their own, which needs no base.
    Raises PoolError on sizes that are no multiple of 64.
    """
    if hidden <= 0 or intermediate <= 0 or hidden % 64 or intermediate % 64:
        raise PoolError(f"hidden {hidden} x intermediate {intermediate}: expected positive multiples of 64")
    weights = 3 * hidden * intermediate
    scales = weights // _BLOCK
    bits = {Kind.BASE: 2, Kind.FP4: 4, Kind.FP4_SCALED: 4}
    if kind is Kind.QUINTAL:
        # 80 bits of a lane stand for 32 codes.
        return weights // _BLOCK * 10
    return weights * bits[kind] // 8 + (0 if kind is Kind.FP4 else scales)


def needs_base(kind: Kind) -> bool:
    """Whether a slot of this kind is of use only beside the expert's base slot."""
    return kind in (Kind.QUINTAL, Kind.FP4)


@dataclass(frozen=True)
class Pool:
    """Slots of one kind on one rank.

    Attributes:
        kind: what a slot holds.
        layers: MoE layers.
        experts: routed experts of a layer.
        quotas: slots of each layer, or one number: slots that all layers share.
        bytes_a_slot: bytes that a copy into a slot moves.
    """

    kind: Kind
    layers: int
    experts: int
    quotas: tuple[int, ...]
    bytes_a_slot: int

    def __post_init__(self) -> None:
        if self.layers < 1 or self.experts < 1:
            raise PoolError(f"{self.layers} layers x {self.experts} experts: expected at least one of each")
        if len(self.quotas) not in (1, self.layers):
            raise PoolError(f"{len(self.quotas)} quotas: expected 1 or one for each of {self.layers} layers")
        if self.bytes_a_slot < 1:
            raise PoolError(f"{self.bytes_a_slot} bytes a slot: expected at least 1")
        if self.cells > 1 << 17 or len(self.quotas) > 1 << 8:
            raise PoolError(f"{self.cells} cells in {len(self.quotas)} groups: expected at most 131072 in 256")
        for group, quota in enumerate(self.quotas):
            if not 0 <= quota <= self.width:
                raise PoolError(f"quota {quota} of {self.group_name(group)}: expected 0 to {self.width}")

    @property
    def cells(self) -> int:
        """Cells in all: layers x experts."""
        return self.layers * self.experts

    @property
    def slots(self) -> int:
        """Slots in all."""
        return sum(self.quotas)

    @property
    def width(self) -> int:
        """Cells that share one quota."""
        return self.cells // len(self.quotas)

    @property
    def shared(self) -> bool:
        """Whether the layers share one quota (of several layers)."""
        return len(self.quotas) < self.layers

    def group_name(self, group: int) -> str:
        """A quota's owner, for messages."""
        return "all layers" if self.shared else f"layer {group}"

    def floor(self, rows: int, top_k: int) -> int:
        """Slots that each quota needs so that whatever `rows` rows ask of all layers is resident at once."""
        return min(self.experts, rows * top_k) * (self.layers if self.shared else 1)

    def least(self, top_k: int) -> int:
        """Slots that each quota needs so that one row can be computed at all, one layer at a time."""
        return min(self.experts, top_k)


def admit(pool: Pool, rows: int, top_k: int, forced: bool = False) -> bool:
    """Whether the pool is at or above the floor for steps of up to `rows` rows, each with `top_k` experts a layer.

    Below the floor, PoolError is raised; if `forced`, False is returned, and steps that do not fit are computed layer
    by layer, or in parts. PoolError is raised even then where one row's experts of one layer do not fit.
    """
    if rows < 1 or not 1 <= top_k <= pool.experts:
        raise PoolError(f"{rows} rows x top {top_k}: expected at least 1 row and 1 to {pool.experts} experts")
    quota, group = min((quota, group) for group, quota in enumerate(pool.quotas))
    if quota < pool.least(top_k):
        raise PoolError(
            f"{quota} slots for {pool.group_name(group)}: one row asks for {pool.least(top_k)}; "
            "nothing smaller can work"
        )
    floor = pool.floor(rows, top_k)
    if quota < floor and not forced:
        raise PoolError(
            f"{quota} slots for {pool.group_name(group)}: the floor for {rows} rows x top {top_k} is {floor}; "
            "give it more, lower the rows of a step, or force it: steps that do not fit then take longer"
        )
    return quota >= floor
