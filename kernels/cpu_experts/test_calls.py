"""Calls of the tier: jobs, queues, threads, forks, and misuse."""

import math
import os
import random
import threading

import numpy as np
import pytest

from kernels.cpu_experts import made_up, reference, topology
from kernels.cpu_experts.layout import Record
from kernels.cpu_experts.made_tier import made, same
from kernels.cpu_experts.op import MAX_TOKENS, CpuExperts, ExpertsError, host_function, isas


def test_auto_takes_what_the_cpu_has() -> None:
    tier = made(Record(128, 128), {})
    assert all(tier.isa(tokens) in isas() for tokens in range(1, MAX_TOKENS + 1))
    assert tier.isa(1) == [isa for isa in isas() if isa != "amx"][-1]
    assert tier.isa(8) == isas()[-1]


def test_nothing_to_compute_is_zero() -> None:
    tier = made(Record(128, 128), {})
    got = tier(made_up.activations((2, 128), 1), np.full((2, 4), -1, np.int32), np.ones((2, 4), np.float32))
    assert same(got, np.zeros((2, 128), np.float32))


def test_base_and_jobs_that_are_run_again() -> None:
    shape = Record(128, 128)
    records = {expert: made_up.record(shape, expert) for expert in range(8)}
    tier = made(shape, records)
    x, out = made_up.activations((2, 128), 1), np.empty((2, 128), np.float32)
    ids, weights = np.array([[0, 1], [-1, 3]], np.int32), np.ones((2, 2), np.float32)
    jobs = [tier.job(x, ids, weights, out32=out, base=base) for base in (0, 4)]
    for seed in range(3):
        x[:] = made_up.activations((2, 128), seed)
        for base, job in zip((0, 4), jobs, strict=True):
            job.run()
            moved = np.where(ids >= 0, ids + base, ids).astype(np.int32)
            assert same(out, reference.experts(shape, records, x, moved, weights, 10.0))


def test_threads_that_submit_at_a_time() -> None:
    """Four submitters, several jobs at a time, more threads than cores, parked ones and spinning ones."""
    shape = Record(128, 128)
    records = {expert: made_up.record(shape, expert) for expert in range(8)}
    cases = []
    for seed in range(24):
        tokens = seed % 8 + 1
        x, (ids, weights) = made_up.activations((tokens, 128), seed), made_up.routed(tokens, 4, 8, seed)
        cases.append((x, ids, weights, reference.experts(shape, records, x, ids, weights, 10.0)))
    for threads, spin in ((1, 0.0), (2, 0.0), (3, 0.002), (4, 0.0)):
        tier = made(shape, records, threads=threads, spin=spin)
        wrong: list[object] = []

        def go(seed: int, tier: CpuExperts = tier, wrong: list[object] = wrong) -> None:
            order = random.Random(seed)
            for _ in range(40):
                some = [cases[order.randrange(len(cases))] for _ in range(order.randrange(1, 5))]
                outs = [np.empty(case[3].shape, np.float32) for case in some]
                jobs = [tier.job(*case[:3], out32=out) for case, out in zip(some, outs, strict=True)]
                for job in jobs:
                    job.submit()
                for job in reversed(jobs):
                    job.wait()
                wrong += [case for case, out in zip(some, outs, strict=True) if not same(out, case[3])]

        submitters = [threading.Thread(target=go, args=(seed,)) for seed in range(4)]
        for submitter in submitters:
            submitter.start()
        for submitter in submitters:
            submitter.join()
        assert not wrong


def test_submitted_twice() -> None:
    tier = made(Record(128, 128), {0: made_up.record(Record(128, 128), 1)})
    out = np.empty((1, 128), np.float32)
    call = made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    want = tier(*call)
    job = tier.job(*call, out32=out)
    for _ in range(3):
        job.submit()
        with pytest.raises(ExpertsError, match="submitted already"):
            job.submit()
        job.wait()
        assert same(out, want)


def test_closed() -> None:
    tier = made(Record(128, 128), {0: made_up.record(Record(128, 128), 1)})
    out = np.empty((1, 128), np.float32)
    call = made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    want = tier(*call)
    job = tier.job(*call, out32=out)
    job.submit()
    tier.close()
    tier.close()
    job.wait()
    assert same(out, want)
    with pytest.raises(ExpertsError, match="is closed"):
        job.run()


def test_dropped_while_it_is_computed() -> None:
    """Nobody waits for these jobs, or keeps their memory or their tier."""
    shape = Record(128, 128)
    record = made_up.record(shape, 1)
    for _ in range(10):
        tier = made(shape, {0: record})
        for _ in range(20):
            x, ids, weights = made_up.activations((8, 128), 1), np.zeros((8, 4), np.int32), np.ones((8, 4), np.float32)
            tier.job(x, ids, weights, out32=np.empty((8, 128), np.float32)).submit()
        del tier, x, ids, weights


def test_more_jobs_than_the_queue_holds() -> None:
    shape = Record(128, 128)
    tier = made(shape, {0: made_up.record(shape, 1)})
    x, ids, weights = made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    want = tier(x, ids, weights)
    outs = [np.empty((1, 128), np.float32) for _ in range(700)]
    jobs = [tier.job(x, ids, weights, out32=out) for out in outs]
    for job in jobs:
        job.submit()
    for job, out in zip(jobs, outs, strict=True):
        job.wait()
        assert same(out, want)


def test_made_and_ended_again_and_again() -> None:
    shape = Record(128, 128)
    records = {0: made_up.record(shape, 1)}
    before = len(os.listdir("/proc/self/task"))
    for threads in (1, 2, 4) * 5:
        tier = made(shape, records, threads=threads, spin=0.0)
        tier(made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))
        del tier
    assert len(os.listdir("/proc/self/task")) <= before


def test_after_a_fork() -> None:
    shape = Record(128, 128)
    records = {0: made_up.record(shape, 1)}
    tier = made(shape, records)
    call = made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    want = tier(*call)
    child = os.fork()
    if not child:
        # The parent's threads are not here, and that is said; a tier of its own is one that works.
        try:
            tier(*call)
        except ExpertsError as error:
            good = "forked" in str(error) and same(made(shape, records)(*call), want)
            del tier
            os._exit(0 if good else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert same(tier(*call), want)


def test_an_expert_without_a_record() -> None:
    tier = made(Record(128, 128), {1: made_up.record(Record(128, 128), 1)})
    x, weights, out = made_up.activations((1, 128), 1), np.ones((1, 2), np.float32), np.zeros((1, 128), np.float32)
    for ids in ([1, 2], [1, 8], [2**31 - 1, 1]):
        out[:] = 0
        job = tier.job(x, np.array([ids], np.int32), weights, out32=out, base=0)
        with pytest.raises(ExpertsError, match="has no record"):
            job.run()
        assert np.isnan(out).all()
    good = tier.job(x, np.array([[1, -1]], np.int32), weights, out32=out)
    good.run()
    assert not np.isnan(out).any()


def test_misuse_of_a_tier() -> None:
    for arguments, message in (
        ({"hidden": 100}, "hidden is 100; expected a positive multiple of 128"),
        ({"experts": 0}, "experts is 0"),
        ({"slots": 65}, "slots is 65; expected 1 to 64"),
        ({"activations": "int4"}, "activations is 'int4'; expected int16 or int8"),
        ({"limit": 0.0}, "limit is 0.0"),
        ({"limit": math.nan}, "limit is nan"),
        ({"isa": "neon"}, "isa is 'neon'; expected auto or one of scalar"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": 1, "cores": [0]}, "both given"),
        ({"cores": []}, "cores is"),
        ({"cores": [100000]}, r"cores is \[100000\]; expected different ones"),
        ({"cores": [topology.pick()[0]] * 2}, "expected different ones"),
        ({"spin": -1.0}, "spin is -1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            CpuExperts(**{"hidden": 128, "intermediate": 128, "experts": 1, "slots": 1, **arguments})  # type: ignore[arg-type]


def test_misuse_of_records() -> None:
    shape = Record(128, 128)
    tier = made(shape, {})
    good = made_up.record(shape, 1)
    with pytest.raises(ValueError, match=f"has {shape.size - 1} bytes; expected {shape.size}"):
        tier.set_record(0, good[:-1])
    with pytest.raises(ValueError, match="expected a multiple of 64"):
        tier.set_record(0, made_up.aligned(shape.size + 64)[1 : 1 + shape.size])
    with pytest.raises(ValueError, match="expert is 8; expected 0 to 7"):
        tier.set_record(8, good)
    with pytest.raises(TypeError, match="is int8; expected uint8"):
        tier.set_record(0, good.view(np.int8))
    with pytest.raises(TypeError, match="is bytes; expected a numpy array"):
        tier.set_record(0, bytes(good))
    with pytest.raises(KeyError):
        tier.place(3)


def test_misuse_of_jobs() -> None:
    tier = made(Record(128, 128), {}, slots=2)
    x, ids, weights = made_up.activations((2, 128), 1), np.zeros((2, 2), np.int32), np.ones((2, 2), np.float32)
    out = np.empty((2, 128), np.float32)
    read_only = out.copy()
    read_only.flags.writeable = False
    for changed, kind, message in (
        ({"x": x[:, :64]}, ValueError, r"x is \[2, 64\]; expected \[any, 128\]"),
        ({"x": x.view(np.int16)}, TypeError, "x is int16; expected bfloat16 or uint16"),
        ({"x": made_up.activations((9, 128), 1)}, ValueError, "x has 9 tokens; expected 1 to 8"),
        ({"x": x[:0]}, ValueError, "x has 0 tokens"),
        ({"x": made_up.activations((2, 256), 1)[:, ::2]}, ValueError, "x is not contiguous"),
        ({"x": x.tolist()}, TypeError, "x is list; expected a numpy array or a torch tensor"),
        ({"ids": ids.astype(np.int64)}, TypeError, "ids is int64; expected int32"),
        ({"ids": ids[:1]}, ValueError, r"ids is \[1, 2\]; expected \[2, any\]"),
        ({"ids": np.zeros((2, 3), np.int32)}, ValueError, "ids has 3 slots; expected 1 to 2"),
        ({"weights": weights[:, :1]}, ValueError, r"weights is \[2, 1\]; expected \[2, 2\]"),
        ({"weights": weights.astype(np.float64)}, TypeError, "weights is float64"),
        ({"out32": None}, ValueError, "out32 and out16 are both missing"),
        ({"out32": out[:1]}, ValueError, r"out32 is \[1, 128\]"),
        ({"out32": read_only}, ValueError, "out32 is read only"),
        ({"out16": out}, TypeError, "out16 is float32"),
        ({"base": 8}, ValueError, "base is 8; expected 0 to 7"),
        ({"base": -1}, ValueError, "base is -1"),
    ):
        given = {"x": x, "ids": ids, "weights": weights, "out32": out, **changed}
        with pytest.raises(kind, match=message):
            tier.job(given.pop("x"), given.pop("ids"), given.pop("weights"), **given)
    room = np.empty(2 * 128 * 2 + 1, np.uint8)[1:].view(np.uint16).reshape(2, 128)
    with pytest.raises(ValueError, match="expected a multiple of 2"):
        tier.job(room, ids, weights, out32=out)
    with pytest.raises(ValueError, match="tokens is 9"):
        tier.isa(9)
    with pytest.raises(ValueError, match="host function 'stop'; expected one of submit, wait, run"):
        host_function("stop")
