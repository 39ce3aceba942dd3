"""Deleting what an engine has not used for long, or what is too much, from its KV disk tier."""

import fcntl
import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from serving.kvcache.engine_files import Kind
from serving.kvcache.faults import Faults
from serving.kvcache.progress import Progress
from serving.kvcache.tier import File, Leaf, Tier
from tools.cli.errors import UserError

SCHEMA = "moet.kvcache-ttl.v1"
# Of the cap: so much stays once it is exceeded, so that not every run deletes a few.
LOW_WATER = 0.9
TEMPORARY_SECONDS = 3600


@dataclass(frozen=True)
class Limits:
    """What may stay.

    Attributes:
        hours: a block that was not used for longer goes.
        max_bytes: where the blocks have more together, the longest unused go, until 90 % of it stay.
    """

    hours: float
    max_bytes: int


@dataclass
class Count:
    """A number of files, and their bytes."""

    files: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        """One file more, of `size` bytes."""
        self.files += 1
        self.size += size


@dataclass
class Sweep:
    """What one run deleted, or would with `dry_run`.

    Attributes:
        limits: what it was given.
        dry_run: whether nothing was deleted.
        unused: blocks that were not used for `limits.hours`.
        over_cap: blocks that were over the cap.
        temporary: temporary files whose writer is dead.
        kept: blocks that stay.
    """

    limits: Limits
    dry_run: bool
    unused: Count = field(default_factory=Count)
    over_cap: Count = field(default_factory=Count)
    temporary: Count = field(default_factory=Count)
    kept: Count = field(default_factory=Count)

    def document(self, tier: Tier) -> dict[str, Any]:
        """For JSON."""
        counts = ("unused", "over_cap", "temporary", "kept")
        return {
            "schema": SCHEMA,
            "directory": str(tier.path),
            "dry_run": self.dry_run,
            "hours": self.limits.hours,
            "max_bytes": self.limits.max_bytes,
            "access_times": tier.access_times,
            **{name: {"files": getattr(self, name).files, "bytes": getattr(self, name).size} for name in counts},
            "faults": tier.faults.document(),
        }


def sweep(tier: Tier, limits: Limits, now: float, progress: Progress, dry_run: bool = False) -> Sweep:
    """Deletes from `tier` what is beyond `limits` at the time `now` (seconds since 1970), beside a working engine.

    What cannot be read or deleted is added to `tier.faults`, and stays.

    Raises:
        UserError: another run deletes there; nothing was deleted.
    """
    if not dry_run:
        _lock(tier)
    done = Sweep(limits, dry_run)
    by_second = _pass_over_all(tier, done, now, progress)
    if done.kept.size > limits.max_bytes:
        _pass_over_oldest(tier, done, now, progress, by_second)
    return done


def _lock(tier: Tier) -> None:
    try:
        fcntl.flock(tier.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{tier.path}: another `moet kvcache ttl` is at work in it; wait for it to end") from None
    except OSError:
        # Some network file systems lock no folders. Two runs would then delete more than one, but nothing wrong.
        return


def _pass_over_all(tier: Tier, done: Sweep, now: float, progress: Progress) -> dict[int, int]:
    """Deletes by age; returns how many bytes stay for each second of last use, which is all that the cap needs."""
    by_second: dict[int, int] = defaultdict(int)
    progress.start("looking at blocks", 0)
    for folder in tier.folders:
        for leaf in tier.leaves(folder):
            for file in leaf.files:
                if file.kind is Kind.TEMPORARY:
                    if now - file.written > TEMPORARY_SECONDS and _delete(tier, leaf, file, done.dry_run):
                        done.temporary.add(file.size)
                elif not _is_unused(file, done.limits, now):
                    done.kept.add(file.size)
                    by_second[int(file.used)] += file.size
                elif _delete(tier, leaf, file, done.dry_run):
                    done.unused.add(file.size)
            progress.advance(sum(file.size for file in leaf.files))
    return by_second


def _pass_over_oldest(tier: Tier, done: Sweep, now: float, progress: Progress, by_second: dict[int, int]) -> None:
    """Deletes the longest unused blocks, second by second, until the low-water mark is reached.

    Times are read again, so that a block stays which the engine has used since. What cannot be read was told already.
    """
    excess = done.kept.size - int(done.limits.max_bytes * LOW_WATER)
    progress.start("deleting the oldest", excess)
    cutoff = 0
    for cutoff in sorted(by_second):
        if by_second[cutoff] >= excess:
            break
        excess -= by_second[cutoff]
    # What is left of `excess` goes from among the blocks of the second `cutoff`.
    again = replace(tier, faults=Faults())
    for folder in again.folders:
        for leaf in again.leaves(folder):
            for file in leaf.files:
                second = int(file.used)
                beyond = second < cutoff or (second == cutoff and excess > 0)
                if file.kind is not Kind.BLOCK or not beyond or _is_unused(file, done.limits, now):
                    continue
                if second == cutoff:
                    excess -= file.size
                if _delete(tier, leaf, file, done.dry_run):
                    done.over_cap.add(file.size)
                    done.kept.files -= 1
                    done.kept.size -= file.size
                    progress.advance(file.size)


def _is_unused(file: File, limits: Limits, now: float) -> bool:
    return now - file.used > limits.hours * 3600


def _delete(tier: Tier, leaf: Leaf, file: File, dry_run: bool) -> bool:
    """Whether it is gone by this run's doing, or would be."""
    try:
        if not dry_run:
            os.unlink(file.name, dir_fd=leaf.descriptor)
    except FileNotFoundError:
        return False
    except OSError as error:
        tier.faults.add(f"{leaf.path}/{file.name}", error)
        return False
    return True
