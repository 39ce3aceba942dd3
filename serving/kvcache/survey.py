"""What a KV disk tier holds: size, age and format of the blocks, folder by folder."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from serving.kvcache.engine_files import Kind
from serving.kvcache.progress import Progress
from serving.kvcache.tier import Folder, Tier

SCHEMA = "moet.kvcache-stat.v1"
# Upper ends of the classes of age, in hours; the last class has none.
AGES = (1, 24, 72, 168)


@dataclass
class Survey:
    """What is in one folder of the engine's.

    Attributes:
        folder: which.
        sizes: how many blocks there are of each size in bytes. One engine writes one size; with more of them, engines
            with different formats share the folder, or a crash cut blocks short.
        by_age: bytes of the blocks last used within AGES[0] hours, AGES[1] hours ..., and before that.
        oldest: hours since the longest unused block was used; None without blocks.
        newest: hours since the last use of any.
        temporary: how many temporary files there are.
    """

    folder: Folder
    sizes: Counter[int] = field(default_factory=Counter)
    by_age: list[int] = field(default_factory=lambda: [0] * (len(AGES) + 1))
    oldest: float | None = None
    newest: float | None = None
    temporary: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.sizes.total()

    @property
    def size(self) -> int:
        """Bytes of all blocks."""
        return sum(size * count for size, count in self.sizes.items())

    def add(self, size: int, hours: float) -> None:
        """A block of `size` bytes more, last used `hours` ago."""
        self.sizes[size] += 1
        self.by_age[sum(hours >= end for end in AGES)] += size
        self.oldest = hours if self.oldest is None else max(hours, self.oldest)
        self.newest = hours if self.newest is None else min(hours, self.newest)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        config = self.folder.config
        return {
            "path": self.folder.path,
            "model": config.model,
            "dtype": config.dtype,
            "canonical_format": config.canonical_format,
            "tokens_per_block": list(config.tokens),
            "blocks": self.blocks,
            "bytes": self.size,
            "block_bytes": {str(size): count for size, count in sorted(self.sizes.items())},
            "bytes_by_age": [
                {"below_hours": end, "bytes": size} for end, size in zip((*AGES, None), self.by_age, strict=True)
            ],
            "oldest_hours": None if self.oldest is None else round(self.oldest, 2),
            "newest_hours": None if self.newest is None else round(self.newest, 2),
            "temporary": self.temporary,
        }


def surveys(tier: Tier, now: float, progress: Progress) -> list[Survey]:
    """Looks at every block of `tier`, with ages at `now` (seconds since 1970); reads no file but config.json."""
    found = []
    progress.start("looking at blocks", 0)
    for folder in tier.folders:
        survey = Survey(folder)
        for leaf in tier.leaves(folder):
            for file in leaf.files:
                if file.kind is Kind.BLOCK:
                    survey.add(file.size, max(0.0, now - file.used) / 3600)
                else:
                    survey.temporary += 1
            progress.advance(sum(file.size for file in leaf.files))
        found.append(survey)
    return found


def document(tier: Tier, found: list[Survey]) -> dict[str, Any]:
    """For JSON."""
    return {
        "schema": SCHEMA,
        "directory": str(tier.path),
        "access_times": tier.access_times,
        "folders": [each.document() for each in found],
        "faults": tier.faults.document(),
    }
