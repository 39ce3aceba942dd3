"""What an action costs: wall time, CPU seconds and bytes written, daemons that work for it included."""

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Wall and CPU time in seconds; bytes written to file systems on disks (as the kernel accounts them).

    A byte that is written and soon deleted counts: whether it reached the disk is a matter of timing.
    """

    wall_s: float
    cpu_s: float
    written_bytes: int

    def __add__(self, other: "Cost") -> "Cost":
        """The cost of one after the other."""
        written = self.written_bytes + other.written_bytes
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s, written)


def measure(action: Callable[[], object], daemons: Sequence[int] = ()) -> Cost:
    """Run `action` and return what it cost.

    Counted are the child processes that ended meanwhile, with their own, and the process trees of `daemons`
    (process ids). What earlier actions left to be written to disk is written before the clock starts.
    """
    os.sync()
    before = _spent(daemons)
    start = time.perf_counter()
    action()
    wall = time.perf_counter() - start
    after = _spent(daemons)
    return Cost(wall, after[0] - before[0], after[1] - before[1])


def _spent(daemons: Sequence[int]) -> tuple[float, int]:
    """CPU seconds and written bytes so far, of this process with its ended children and of `daemons`."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    written = _written(os.getpid())
    for pid, ticks in _trees(daemons).items():
        cpu += ticks / _TICKS
        written += _written(pid)
    return cpu, written


def _trees(roots: Sequence[int]) -> dict[int, int]:
    """Clock ticks of each living process at or below `roots`, those of its ended children included."""
    parents, ticks = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # proc(5): after the name, in brackets, field 4 is the parent and 14 to 17 are times.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    found = {pid for pid in roots if pid in ticks}
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return {pid: ticks[pid] for pid in found}


def _written(pid: int) -> int:
    """Bytes that a process and its ended children caused to be written (proc(5), write_bytes)."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line for line in lines if line.startswith("write_bytes:")).split()[1])
