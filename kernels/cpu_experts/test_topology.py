"""Machines as /sys tells of them: made up here, and the one that runs this."""

import os
from pathlib import Path

import numpy as np
import pytest

from kernels.cpu_experts import made_up, op, topology
from kernels.cpu_experts.engine import Engine
from kernels.cpu_experts.layout import Record
from kernels.cpu_experts.op import CpuExperts


def machine(root: Path, nodes: int, caches: int, physical: int, threads: int) -> list[int]:
    """So many nodes of caches of cores of threads; second threads are numbered after all first ones, as Linux does."""
    total = nodes * caches * physical
    for node in range(nodes):
        its: list[int] = []
        for cache in range(caches):
            firsts = [(node * caches + cache) * physical + core for core in range(physical)]
            everyone = [core + total * thread for thread in range(threads) for core in firsts]
            its += everyone
            for core in everyone:
                folder = root / f"devices/system/cpu/cpu{core}"
                (folder / "topology").mkdir(parents=True)
                (folder / "cache/index3").mkdir(parents=True)
                siblings = ",".join(str(core % total + total * thread) for thread in range(threads))
                (folder / "topology/thread_siblings_list").write_text(siblings + "\n")
                (folder / "cache/index3/shared_cpu_list").write_text(",".join(map(str, everyone)) + "\n")
        folder = root / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(",".join(map(str, its)) + "\n")
    return list(range(total * threads))


def test_lists() -> None:
    assert topology.parse_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert topology.parse_list("\n") == []
    with pytest.raises(ValueError, match="invalid literal"):
        topology.parse_list("0-x")


def test_two_nodes_of_two_caches(tmp_path: Path) -> None:
    allowed = machine(tmp_path, 2, 2, 4, 2)
    cores = topology.cores(allowed, sys=tmp_path)
    assert len(cores) == 32
    assert [core.node for core in cores] == [0] * 16 + [1] * 16
    assert [core.cache for core in cores] == [0] * 8 + [4] * 8 + [8] * 8 + [12] * 8
    assert [core.number for core in cores[:8]] == [0, 1, 2, 3, 16, 17, 18, 19]
    assert [core.first_sibling for core in cores[:8]] == [0, 1, 2, 3] * 2


def test_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = topology.cores(machine(tmp_path, 2, 2, 4, 2), sys=tmp_path)
    monkeypatch.setattr(topology, "cores", lambda: found)
    assert topology.pick(3) == [0, 1, 2]
    assert topology.pick(caches=[1]) == [4, 5, 6, 7, 20, 21, 22, 23]
    assert topology.pick(caches=[0, 3], siblings=False) == [0, 1, 2, 3, 12, 13, 14, 15]
    with pytest.raises(ValueError, match="count is 9; expected 1 to 8"):
        topology.pick(9, caches=[1])
    with pytest.raises(ValueError, match=r"caches: \[4\]; expected numbers below 4"):
        topology.pick(caches=[0, 4])


def test_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, 2, 1, 2, 1)
    nodes = topology.nodes(tmp_path)
    assert nodes == {0: [0, 1], 1: [2, 3]}
    monkeypatch.setattr(topology, "nodes", lambda: nodes)
    assert topology.domains([2, 3, 0]) == [0, 0, 1]


def test_nothing_told(tmp_path: Path) -> None:
    assert topology.nodes(tmp_path) == {0: sorted(os.sched_getaffinity(0))}
    cores = topology.cores([3, 5], sys=tmp_path)
    assert [(core.number, core.first_sibling, core.cache, core.node) for core in cores] == [(3, 3, 3, 0), (5, 5, 5, 0)]


def test_this_machine() -> None:
    assert sorted(topology.pick()) == sorted(os.sched_getaffinity(0))
    assert topology.domains(topology.pick())[0] == 0


def test_placed() -> None:
    shape = Record(256, 256)
    tier = CpuExperts(256, 256, 1, 1)
    record = made_up.record(shape, 1)
    kept = record.copy()
    tier.set_record(0, record)
    said = tier.place(0)
    if len(topology.nodes()) == 1:
        assert said == "one memory node: nothing to place"
    else:
        assert "w1: " in said
    assert np.array_equal(record, kept)


def test_placed_for_threads_without_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Record(256, 256)
    tier = CpuExperts(256, 256, 1, 1, threads=2)
    tier.set_record(0, made_up.record(shape, 1))
    monkeypatch.setattr(topology, "nodes", lambda: {0: [0], 1: [1]})
    assert tier.place(0) == "threads that are not pinned: nothing to place"


def test_bound_where_there_are_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with two nodes: what the system then says is passed on."""
    memory = made_up.arena(1 << 20)
    monkeypatch.setattr(topology, "nodes", lambda: {0: [0], 1: [1]})
    assert topology.bind(memory.ctypes.data, 100, 0) == "less than a page: left where it is"
    assert topology.bind(memory.ctypes.data + 10, 1 << 19, 0) == "127 pages on node 0"
    with pytest.raises(OSError, match=r"mbind of 1048576 bytes to node 900"):
        topology.bind(memory.ctypes.data, 1 << 20, 900)


def test_two_domains_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows split between the threads of two nodes, one of them with more threads."""
    shape = Record(384, 256)
    record = made_up.record(shape, 2)
    call = made_up.activations((3, 384), 3), np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32)
    one = CpuExperts(384, 256, 1, 1, threads=1)
    one.set_record(0, record)
    for domains in ([0, 1], [0, 1, 1], [0, 0, 0, 1]):

        def split(*arguments: object, domains: list[int] = domains) -> Engine:
            return Engine(*arguments[:8], [-1] * len(domains), domains)  # type: ignore[call-arg,arg-type]

        monkeypatch.setattr(op, "Engine", split)
        two = op.CpuExperts(384, 256, 1, 1, cores=topology.pick()[:1])
        two.set_record(0, record)
        assert np.array_equal(two(*call).view(np.uint32), one(*call).view(np.uint32))
