"""Runs every policy on a trace for every size of pool, and sums up what it found."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from . import demand, policies, promote, requests
from .demand import Outcome
from .link import Link
from .pool import Kind, Pool, admit
from .replay import LIMIT
from .requests import Requests
from .rules import Rules
from .trace import RoutingTrace

POLICIES = ("lru", "lfu", "lfu-aged", "ours", "belady")
Mode = Literal["demand", "promote"]


@dataclass(frozen=True)
class Setting:
    """What is the same for every policy and size.

    Attributes:
        mode: demand: base slots, a step waits for what it misses; promote: delta slots, nobody waits.
        kind: what slots hold.
        bytes_a_slot: bytes of a copy.
        rules: ours.
        link: what copies and steps cost.
        tick: seconds of a tick.
        every: seconds from one promotion pass to the next.
        warm: steps at the beginning that are run and not counted.
        forced: pools below the floor are simulated too.
    """

    mode: Mode
    kind: Kind
    bytes_a_slot: int
    rules: Rules
    link: Link
    tick: float
    every: float
    warm: int
    forced: bool

    @property
    def steps_a_tick(self) -> int:
        """Steps of a tick, as long as a step that misses nothing takes; at least 1."""
        return max(1, round(self.tick / self.link.step))

    @property
    def steps_a_pass(self) -> int:
        """Steps from one pass to the next; at least 1."""
        return max(1, round(self.every / self.link.step))


@dataclass(frozen=True)
class Result:
    """Of one policy and one pool.

    Attributes:
        policy: its name; in mode promote `bound` takes the place of belady (promote.bound).
        quotas: slots of each layer, or of all.
        slots: slots in all.
        share: slots as a share of cells.
        slot_bytes: bytes of all slots.
        hit_rate: of cells that steps asked for, those that were resident when the step (or part) began.
        zero_miss: of steps, those that missed nothing; None where only sums are known (the bound of mode promote).
        misses: per step.
        bytes_a_step: copied per step; in mode promote over the warm part too.
        replays: per step, at least and at most: a trace tells the routing of the last pass only.
        step_seconds: with that: replays and what they wait for. In mode promote, always the link's step.
        parts: of steps, those that had to be computed layer by layer or in parts.
        below_floor: the pool was forced.
        steps_a_second: simulated in a second of this machine.
    """

    policy: str
    quotas: tuple[int, ...]
    slots: int
    share: float
    slot_bytes: int
    hit_rate: float
    zero_miss: float | None
    misses: float
    bytes_a_step: float
    replays: tuple[float, float]
    step_seconds: tuple[float, float]
    parts: float
    below_floor: bool
    steps_a_second: float


def study(
    trace: RoutingTrace,
    pools: Sequence[tuple[int, ...]],
    names: Sequence[str],
    setting: Setting,
    progress: Callable[[int], None] = lambda _steps: None,
) -> list[Result]:
    """Results by pool, then policy. `progress` is told of simulated steps.

    Raises PoolError on a pool below its floor, unless forced, and on one that can never work.
    """
    shapes = [Pool(setting.kind, len(trace.layers), trace.experts, q, setting.bytes_a_slot) for q in pools]
    floors = [
        setting.mode == "demand" and not admit(pool, trace.most_rows, trace.top_k, setting.forced) for pool in shapes
    ]
    whole, results = requests.from_trace(trace), []
    for pool, low in zip(shapes, floors, strict=True):
        asked = requests.fitted(trace, pool) if low else whole
        for name in names:
            began = time.perf_counter()
            outcome = _run(name, asked, pool, setting)
            taken = time.perf_counter() - began
            results.append(_result(name, pool, setting, outcome, low, asked.steps / taken))
            progress(asked.steps)
    return results


def _run(name: str, asked: Requests, pool: Pool, setting: Setting) -> Outcome:
    tick, every = setting.steps_a_tick, setting.steps_a_pass
    budget = setting.rules.promotions
    if setting.mode == "promote":
        if name == "ours":
            return promote.simulate_ours(asked, pool, setting.rules, setting.link, tick, every)
        if name == "belady":
            return promote.bound(asked, pool, budget, every)
        return promote.simulate(asked, pool, policies.policy(name, asked), setting.link, budget, tick, every)
    if name == "ours":
        return demand.simulate_ours(asked, pool, setting.rules, tick)
    if name == "belady" and setting.warm:
        # The best that can be in the slots when counting begins is free, as what the others bring in while warm is.
        late = _after(asked, setting.warm)
        return _padded(demand.simulate(late, pool, policies.policy(name, late), tick, filled=True), asked, setting.warm)
    return demand.simulate(asked, pool, policies.policy(name, asked), tick)


def _after(asked: Requests, warm: int) -> Requests:
    """The sets of steps from `warm` on, which become steps 0 and on."""
    first = int(np.searchsorted(asked.step, warm))
    begin = int(asked.begins[first])
    return replace(
        asked,
        begins=asked.begins[first:] - begin,
        cells=asked.cells[begin:],
        rows=asked.rows[begin:],
        step=asked.step[first:] - warm,
        steps=asked.steps - warm,
    )


def _padded(outcome: Outcome, asked: Requests, warm: int) -> Outcome:
    """The same with nothing in the steps before `warm`."""
    nothing = np.zeros(asked.steps - outcome.asked.size, np.int64)
    assert nothing.size == warm
    parts = (outcome.asked, outcome.missed, outcome.missed_layers, outcome.sets)
    found, missed, layers, sets = (np.concatenate([nothing, part]) for part in parts)
    return Outcome(found, missed, layers, outcome.copies, sets)


def _result(name: str, pool: Pool, setting: Setting, outcome: Outcome, low: bool, speed: float) -> Result:
    counted = slice(setting.warm, None)
    missed, layers = outcome.missed[counted], outcome.missed_layers[counted]
    asked = int(outcome.asked[counted].sum())
    link = setting.link
    least = most = 0.0
    seconds, copied = (link.step, link.step), outcome.copies / outcome.asked.size
    if setting.mode == "demand":
        # After LIMIT whole replays one pass layer by layer ends it.
        least, most = float((layers > 0).mean()), float(np.minimum(layers, LIMIT + 1).mean())
        waits = float(missed.mean()) * link.copy_seconds(pool.bytes_a_slot)
        copied = float(missed.mean())
        seconds = (link.step * (1 + least) + waits, link.step * (1 + most) + waits)
    only_sums = setting.mode == "promote" and name == "belady"
    return Result(
        "bound" if only_sums else name,
        pool.quotas,
        pool.slots,
        pool.slots / pool.cells,
        pool.slots * pool.bytes_a_slot,
        1 - int(missed.sum()) / asked,
        None if only_sums else float((missed == 0).mean()),
        float(missed.mean()),
        copied * pool.bytes_a_slot,
        (least, most),
        seconds,
        float((outcome.sets[counted] > 1).mean()),
        low,
        speed,
    )
