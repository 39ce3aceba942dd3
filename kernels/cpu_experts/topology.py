"""Which cores, caches and memory nodes a machine has, as /sys tells; memory placed on a node.

Cores are Linux's numbers. Only those that this process may run on are told of.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SYS = Path("/sys")
# mbind(2) on x86-64, and what of it is used.
_MBIND, _BIND, _MOVE = 237, 2, 2
_PAGE = 4096


def parse_list(text: str) -> list[int]:
    """Numbers of a list as the kernel writes it.

    Raises ValueError for anything else.

    >>> parse_list("0-2,8")
    [0, 1, 2, 8]
    """
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


@dataclass(frozen=True)
class Core:
    """A logical core: the first thread of its physical core, its last-level cache and its memory node."""

    number: int
    first_sibling: int
    cache: int
    node: int


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def nodes(sys: Path = _SYS) -> dict[int, list[int]]:
    """Cores of each NUMA node; one node 0 where the system tells of none."""
    found = {}
    for folder in sorted((sys / "devices/system/node").glob("node[0-9]*")):
        found[int(folder.name[4:])] = parse_list(_read(folder / "cpulist") or "")
    return found or {0: sorted(os.sched_getaffinity(0))}


def cores(allowed: Sequence[int] | None = None, sys: Path = _SYS) -> list[Core]:
    """Cores that this process may use, or those of `allowed`, in the order of node, cache and number."""
    node_of = {core: node for node, its in nodes(sys).items() for core in its}
    found = []
    for number in sorted(os.sched_getaffinity(0) if allowed is None else allowed):
        folder = sys / f"devices/system/cpu/cpu{number}"
        siblings = parse_list(_read(folder / "topology/thread_siblings_list") or str(number))
        shared = [_read(folder / f"cache/index{index}/shared_cpu_list") for index in (3, 2)]
        cache = parse_list(next((text for text in shared if text), str(number)))
        found.append(Core(number, min(siblings), min(cache), node_of.get(number, 0)))
    return sorted(found, key=lambda core: (core.node, core.cache, core.number))


def pick(count: int | None = None, caches: Sequence[int] | None = None, siblings: bool = True) -> list[int]:
    """Numbers of cores for threads, one for each, those of a memory node beside each other.

    `caches` keeps the domains of a last-level cache (a CCD of an EPYC) with these numbers, counted from 0;
    `siblings=False` takes one thread of each physical core. Raises ValueError when fewer than `count` are left.
    """
    found = cores()
    order = sorted({core.cache for core in found}, key=[core.cache for core in found].index)
    if caches is not None:
        wrong = [domain for domain in caches if not 0 <= domain < len(order)]
        if wrong:
            raise ValueError(f"caches: {wrong}; expected numbers below {len(order)}, as many as this machine has")
        found = [core for core in found if order.index(core.cache) in set(caches)]
    if not siblings:
        found = list({core.first_sibling: core for core in reversed(found)}.values())[::-1]
    if count is not None:
        if not 0 < count <= len(found):
            raise ValueError(f"count is {count}; expected 1 to {len(found)}, the cores that are left")
        found = found[:count]
    return [core.number for core in found]


def domains(numbers: Sequence[int]) -> list[int]:
    """For each core the position, among the nodes of all of them, of its own: 0 for all on a machine with one node."""
    node_of = {core: node for node, its in nodes().items() for core in its}
    here = [node_of.get(number, 0) for number in numbers]
    order = sorted(set(here), key=here.index)
    return [order.index(node) for node in here]


def bind(address: int, size: int, node: int) -> str:
    """Moves the pages that lie wholly in this memory to a node and keeps them there; says in a line what was done.

    On a machine with one node nothing is done. Raises OSError when the system refuses.
    """
    if len(nodes()) < 2:
        return "one memory node: nothing to place"
    begin, end = -(-address // _PAGE) * _PAGE, (address + size) // _PAGE * _PAGE
    if end <= begin:
        return "less than a page: left where it is"
    mask = (ctypes.c_ulong * 16)()
    mask[node // 64] = 1 << node % 64
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_void_p(begin), ctypes.c_ulong(end - begin), _BIND, mask, ctypes.c_ulong(1024), _MOVE)
    if libc.syscall(ctypes.c_long(_MBIND), *arguments):
        error = ctypes.get_errno()
        raise OSError(error, f"mbind of {end - begin} bytes to node {node}: {os.strerror(error)}")
    return f"{(end - begin) // _PAGE} pages on node {node}"
