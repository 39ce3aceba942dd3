"""A setting in which a slot cache is explored, and a state of it."""

from dataclasses import dataclass
from functools import cached_property

from ..cache import SlotCache
from ..pool import Kind, Pool
from ..rules import Rules
from ..slots import Step

GARBAGE = -2
BY_FETCH = 100


@dataclass(frozen=True)
class Setting:
    """What can happen.

    Attributes:
        quotas: slots of each layer, or of all.
        layers: layers.
        experts: experts of each.
        rules: the rules that the cache must keep.
        running: steps that may be under way at once.
        asks: cells that a step may have asked for when it ends, each as often as rows were routed to it.
        fetches: sets of cells that may be fetched for a step.
        some: cells that may be fetched if there is place.
        pins: cells that may be pinned, once each.
        passes: whether promotion passes may run.
        failures: whether copies may fail.
    """

    quotas: tuple[int, ...]
    layers: int
    experts: int
    rules: Rules
    running: int = 1
    asks: tuple[tuple[int, ...], ...] = ()
    fetches: tuple[tuple[int, ...], ...] = ()
    some: tuple[int, ...] = ()
    pins: tuple[int, ...] = ()
    passes: bool = True
    failures: bool = False

    @cached_property
    def pool(self) -> Pool:
        """The pool."""
        return Pool(Kind.BASE, self.layers, self.experts, self.quotas, 1)


@dataclass(frozen=True)
class State:
    """The cache, and what it does not know.

    Attributes:
        cache: never changed; events happen to a clone.
        memory: whose bytes each slot holds; GARBAGE less a cell while that cell's copy is under way.
        running: steps under way, with their tables.
        pinned: cells that are pinned.
        ages: ticks since the promotion into each slot began; BY_FETCH where a step waited for it.
        waited: cells that were fetched and are not there yet.
    """

    cache: SlotCache
    memory: tuple[int, ...]
    running: tuple[tuple[Step, tuple[int, ...]], ...]
    pinned: frozenset[int]
    ages: tuple[int, ...]
    waited: frozenset[int] = frozenset()
