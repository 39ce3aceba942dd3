"""A step that misses experts ends with the bits of a forward that has them all, however small the pool."""

import numpy as np
import pytest

from serving.experts.residency import drive, gate
from serving.experts.residency.cache import SlotCache
from serving.experts.residency.gate import Accept, Gate, GateRules
from serving.experts.residency.misses import Misses
from serving.experts.residency.pool import Kind, Pool, PoolError, admit
from serving.experts.residency.protocol.tiny_moe import TinyMoe
from serving.experts.residency.replay import ReplayError
from serving.experts.residency.rules import OURS

LAYERS, EXPERTS, TOP_K = 5, 12, 2


def run_steps(
    quotas: tuple[int, ...], rows: int, limit: int = 3, steps: int = 30, seed: int = 0
) -> tuple[TinyMoe, Misses, int]:
    """Runs random steps; every one must end with the resident forward's bits. Returns engine, counts, most passes."""
    pool = Pool(Kind.BASE, LAYERS, EXPERTS, quotas, 1)
    cache, engine, misses = (
        SlotCache(pool, OURS),
        TinyMoe(LAYERS, EXPERTS, TOP_K, pool.slots, seed),
        Misses(LAYERS, EXPERTS),
    )
    rng, most, heat = np.random.default_rng(seed), 0, 0
    for step in range(steps):
        engine.x = rng.standard_normal((rows, 16), dtype=np.float32)
        engine.y = np.full_like(engine.x, np.nan)
        most = max(most, drive.run(cache, engine, misses, rows, limit))
        assert engine.y.tobytes() == engine.resident(engine.x).tobytes()
        assert cache.pinned().size == 0 and cache.slots.running == 0
        heat += rows * LAYERS * TOP_K * OURS.unit
        assert int(cache.heat.heat.sum()) == heat, "every row is counted once, however often it ran"
        if step % 5 == 4:
            cache.tick()
            heat = int(cache.heat.heat.sum())
            engine.copy(copies := cache.promote())
            cache.copied(np.array([copy.slot for copy in copies], np.intp))
    assert engine.copies == cache.fetched + cache.promoted
    assert engine.passes == misses.steps + misses.splits + misses.replays
    assert misses.missed == int(misses.by_layer.sum()) <= misses.asked
    return engine, misses, most


@pytest.mark.parametrize("rows", [1, 3])
def test_at_the_floor(rows: int) -> None:
    pool_floor = min(EXPERTS, rows * TOP_K)
    _, misses, most = run_steps((pool_floor,) * LAYERS, rows)
    assert misses.steps == 30 and misses.missed > 100 and misses.zeros > 0
    assert most <= 5 and misses.splits == 0


def test_missing_experts_change_the_result_if_nobody_replays() -> None:
    """What the others show is worth something: a pass with misses gives other bits."""
    engine = TinyMoe(LAYERS, EXPERTS, TOP_K, 1, 0)
    engine.x = np.ones((1, 16), np.float32)
    engine.y = np.zeros_like(engine.x)
    found = engine.whole((0, 1), np.full(LAYERS * EXPERTS, -1, np.int32))
    assert found.zeros == LAYERS * TOP_K and engine.y.tobytes() != engine.resident(engine.x).tobytes()


def test_limits_of_replays() -> None:
    _, whole, most = run_steps((4,) * LAYERS, 2, limit=LAYERS + 1)
    assert whole.by_layer_passes == 0 and most <= LAYERS + 1
    _, none, most = run_steps((4,) * LAYERS, 2, limit=0)
    assert none.replays == 0 and none.by_layer_passes == none.steps - none.clean and most == 2
    assert whole.replays > 0


def test_all_resident_after_a_while() -> None:
    engine, misses, _ = run_steps((EXPERTS,) * LAYERS, 4, steps=60)
    assert misses.missed <= engine.copies <= LAYERS * EXPERTS and misses.clean > 30


def test_pool_forced_below_its_floor() -> None:
    """Layers share slots for one layer only: everything by layer; then fewer than a step's rows need: in parts."""
    _, shared, _ = run_steps((2 * TOP_K,), 2)
    assert shared.by_layer_passes > 25 and shared.splits == 0
    _, split, _ = run_steps((TOP_K,) * LAYERS, 4)
    assert split.splits > 25 and split.steps > 30
    _, both, _ = run_steps((TOP_K,), 3)
    assert both.splits > 0


def test_pool_that_can_never_work() -> None:
    with pytest.raises(ReplayError, match="one row's experts of one layer do not fit"):
        run_steps((TOP_K - 1,) * LAYERS, 1)
    pool = Pool(Kind.BASE, LAYERS, EXPERTS, (TOP_K - 1,) * LAYERS, 1)
    with pytest.raises(PoolError, match="1 slots for layer 0: one row asks for 2; nothing smaller can work"):
        admit(pool, 1, TOP_K, forced=True)


def test_slots_that_wait_for_a_step_beside_this_one() -> None:
    """A driver that carries a step out alone says so rather than compute without an expert."""
    pool = Pool(Kind.BASE, LAYERS, EXPERTS, (TOP_K,) * LAYERS, 1)
    cache, engine, misses = (
        SlotCache(pool, OURS),
        TinyMoe(LAYERS, EXPERTS, TOP_K, pool.slots, 1),
        Misses(LAYERS, EXPERTS),
    )
    engine.x = np.random.default_rng(1).standard_normal((1, 16), dtype=np.float32)
    engine.y = np.zeros_like(engine.x)
    drive.run(cache, engine, misses, 1)
    beside = cache.begin()
    engine.x = np.random.default_rng(2).standard_normal((1, 16), dtype=np.float32)
    with pytest.raises(ReplayError, match="waits for a step that runs beside this one"):
        drive.run(cache, engine, misses, 1)
    assert cache.pinned().size == 0 and cache.slots.running == 1
    engine.copy(copies := cache.end(beside))
    cache.copied(np.array([copy.slot for copy in copies], np.intp))
    drive.run(cache, engine, misses, 1)
    assert engine.y.tobytes() == engine.resident(engine.x).tobytes()


def test_steps_without_a_miss_are_clean() -> None:
    misses, none = Misses(2, 4), np.zeros(0, np.intp)
    misses.step(np.array([0, 5]), none, 0, False)
    misses.step(np.array([0, 5]), none, 1, False)
    misses.step(np.array([0, 5]), none, 0, True)
    misses.step(np.array([0, 5]), np.array([5]), 2, True)
    misses.split(3)
    assert (misses.steps, misses.clean, misses.asked, misses.missed, misses.by_layer.tolist()) == (4, 1, 8, 1, [0, 1])
    assert (misses.replays, misses.by_layer_passes, misses.splits) == (6, 2, 1)
    with pytest.raises(ValueError, match="-1 contributions"):
        misses.pass_missed(-1)


def test_copy_that_fails_leaves_nothing_held() -> None:
    pool = Pool(Kind.BASE, LAYERS, EXPERTS, (4,) * LAYERS, 1)
    cache, engine, misses = (
        SlotCache(pool, OURS),
        TinyMoe(LAYERS, EXPERTS, TOP_K, pool.slots, 1),
        Misses(LAYERS, EXPERTS),
    )
    engine.x = np.random.default_rng(1).standard_normal((2, 16), dtype=np.float32)
    engine.y = np.zeros_like(engine.x)
    for failing in (1, 1, 0):
        engine.failing = failing
        if failing:
            with pytest.raises(OSError, match="cannot be read"):
                drive.run(cache, engine, misses, 2)
            assert cache.pinned().size == 0 and cache.slots.running == 0
            assert np.isfinite(engine.memory[cache.slots.table[cache.slots.table >= 0]]).all()
    drive.run(cache, engine, misses, 2)
    assert engine.y.tobytes() == engine.resident(engine.x).tobytes()


def test_gate_over_delta_slots() -> None:
    """Steps in doubt run again with more experts in high precision, at most three times.

    Their bits are those of a forward in which exactly the experts with a slot are exact.
    """
    pool = Pool(Kind.FP4_SCALED, LAYERS, EXPERTS, (6,) * LAYERS, 1)
    cache, engine = SlotCache(pool, OURS), TinyMoe(LAYERS, EXPERTS, TOP_K, pool.slots, 4)
    engine.base = np.sign(engine.store)
    head = np.random.default_rng(9).standard_normal((16, 32), dtype=np.float32)
    rules, rng, whys = GateRules(promotions=1), np.random.default_rng(5), set()
    for _ in range(60):
        engine.x = rng.standard_normal((1, 16), dtype=np.float32)
        engine.y = np.zeros_like(engine.x)
        state, passes = Gate(), 0
        while True:
            step = cache.begin()
            table = cache.slots.table.copy()
            found = engine.whole((0, 1), table)
            passes += 1
            plain = cache.missing(found.cells)
            hottest = plain[np.argsort(-cache.heat.heat[plain], kind="stable")]
            state, action = gate.judge(state, rules, gate.confidence(engine.y @ head), hottest)
            cache.end(step, *((found.cells, found.rows) if isinstance(action, Accept) else ()))
            if isinstance(action, Accept):
                break
            cache.pin(found.cells)
            engine.copy(copies := cache.fetch_some(action.cells))
            cache.copied(np.array([copy.slot for copy in copies], np.intp))
            cache.unpin(found.cells)
            state, after = gate.placed(state, rules, len(copies))
            if isinstance(after, Accept):
                action = after
                break
        whys.add(action.why)
        assert passes <= 4 and state.replays == passes - 1
        exact = np.where(table[:, None] >= 0, engine.store, engine.base)
        y, _, _ = engine._forward(engine.x, exact, np.arange(LAYERS * EXPERTS, dtype=np.int32))
        assert engine.y.tobytes() == y.tobytes()
        cache.tick()
    assert {"confident", "replays used up"} <= whys
