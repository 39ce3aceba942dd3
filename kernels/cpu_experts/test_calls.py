"""Calls of the tier: jobs, queues, threads, and forks."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kernels.cpu_experts import made_up, reference
from kernels.cpu_experts.layout import Record
from kernels.cpu_experts.made_tier import made, same
from kernels.cpu_experts.op import MAX_TOKENS, CpuExperts, ExpertsError, isas


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


def test_run_while_submitted() -> None:
    tier = made(Record(128, 128), {0: made_up.record(Record(128, 128), 1)})
    out = np.empty((1, 128), np.float32)
    call = made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    job = tier.job(*call, out32=out)
    job.submit()
    with pytest.raises(ExpertsError, match="submitted already"):
        job.run()
    job.wait()
    job.run()
    assert same(out, tier(*call))


def test_a_job_that_was_never_computed() -> None:
    tier = made(Record(128, 128), {0: made_up.record(Record(128, 128), 1)})
    call = made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    job = tier.job(*call, out32=np.empty((1, 128), np.float32))
    for way in (job.check, job.wait):
        with pytest.raises(ExpertsError, match="not computed"):
            way()
    job.run()
    job.check()
    job.wait()


def test_closed_by_two_at_a_time() -> None:
    """Who closes second returns when the threads have ended, too."""
    shape = Record(512, 512)
    before = len(os.listdir("/proc/self/task"))
    tier = made(shape, {0: made_up.record(shape, 1)}, isa="scalar", slots=1)
    call = made_up.activations((8, 512), 1), np.zeros((8, 1), np.int32), np.ones((8, 1), np.float32)
    outs = [np.empty((8, 512), np.float32) for _ in range(20)]
    for out in outs:
        tier.job(*call, out32=out).submit()
    left: list[int] = []

    def close() -> None:
        tier.close()
        left.append(len(os.listdir("/proc/self/task")) - before)

    closers = [threading.Thread(target=close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    # The two that close are threads, too.
    assert max(left) <= 2
    assert all(same(out, outs[0]) for out in outs)


_TOO_MANY = """
import os, resource
from kernels.cpu_experts.op import CpuExperts
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 29), held + (1 << 29)))
before = len(os.listdir("/proc/self/task"))
try:
    CpuExperts(128, 128, 1, 1, threads=1024)
except RuntimeError as error:
    print(error)
assert len(os.listdir("/proc/self/task")) == before
CpuExperts(128, 128, 1, 1, threads=2).close()
"""


def test_threads_that_the_system_does_not_give() -> None:
    """Stacks of a thousand threads in half a GiB: those that began are ended, and what is said is the count."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _TOO_MANY]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert re.fullmatch(r"only \d+ of 1024 threads could be started\n", done.stdout)


def test_signals_are_for_others() -> None:
    """None is handled by a thread that the others wait for."""

    def blocked(task: str) -> int:
        lines = Path(f"/proc/self/task/{task}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)

    before, mine = set(os.listdir("/proc/self/task")), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    tier = made(Record(128, 128), {0: made_up.record(Record(128, 128), 1)}, threads=3)
    made_tasks = set(os.listdir("/proc/self/task")) - before
    # All of them have begun when a job is done.
    tier(made_up.activations((1, 128), 1), np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))
    assert len(made_tasks) == 3
    for task in made_tasks:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
            assert blocked(task) >> (number - 1) & 1
        # A fault must not pass in silence.
        assert not blocked(task) >> (signal.SIGSEGV - 1) & 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mine
    tier.close()


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
    # Nobody takes what is not this call's for its result.
    assert np.isnan(out).all()


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
