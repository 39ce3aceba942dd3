"""A KV disk tier for tests without vLLM, by the names that serving/kvcache/engine_files.py states."""

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.kvcache.ttl import TEMPORARY_SECONDS

HOUR = 3600.0


@dataclass
class FakeTier:
    """One engine's folder in `root`. Every block has `size` bytes."""

    root: Path
    model: str = "/model"
    dtype: str = "fp8_ds_mla"
    size: int = 1000

    @property
    def fields(self) -> dict[str, Any]:
        """What config.json has."""
        return {
            "model_name": self.model,
            "tokens_per_hash": 64,
            "blocks_per_file": 2,
            "tp_size": 4,
            "pp_size": 1,
            "pcp_size": 1,
            "dcp_size": 1,
            "dtype": self.dtype,
            "kv_cache_groups": [{"tokens_per_block": 64, "layer_names": ["layers.0"]}],
            "inference_engine": "vllm",
            "parallel_agnostic": False,
        }

    @property
    def base(self) -> str:
        """The folder's name."""
        text = json.dumps(self.fields, sort_keys=True, separators=(",", ":"))
        return f"{self.model.replace('/', '_')}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def make(self) -> "FakeTier":
        """Writes config.json, as an engine does at its start."""
        (self.root / self.base).mkdir(parents=True, exist_ok=True)
        (self.root / self.base / "config.json").write_text(json.dumps(self.fields, indent=2, sort_keys=True))
        return self

    def path(self, number: int, rank: int = 0, group: int = 0) -> Path:
        """Where the block with this number lies."""
        digits = hashlib.sha256(number.to_bytes(8, "big")).hexdigest()
        return self.root / f"{self.base}_r{rank}" / digits[:3] / f"{digits[3:5]}_g{group}" / f"{digits}.bin"

    def add(self, number: int, hours: float = 0, rank: int = 0, group: int = 0, size: int | None = None) -> Path:
        """A block that was written and last used `hours` ago."""
        path = self.path(number, rank, group)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}_{number}.tmp")
        draft.write_bytes(bytes(self.size if size is None else size))
        set_age(draft, hours)
        draft.rename(path)
        return path

    def add_temporary(self, number: int, seconds: float = TEMPORARY_SECONDS + 60) -> Path:
        """A block that a writer has left half-written `seconds` ago."""
        path = self.path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}_{2**62 + number}.tmp")
        draft.write_bytes(b"half")
        set_age(draft, seconds / HOUR)
        return draft


def set_age(path: Path, hours: float, read_hours: float | None = None) -> None:
    """Makes a file one that was written `hours` ago, and read at the same time or `read_hours` ago."""
    now = time.time()
    read = hours if read_hours is None else read_hours
    os.utime(path, (now - read * HOUR, now - hours * HOUR), follow_symlinks=False)


class Silent:
    """A listener to progress that keeps what it hears: the phases, and how many bytes each advanced."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.advanced: list[int] = []

    def start(self, what: str, total: int) -> None:
        """A phase begins."""
        self.phases.append((what, total))
        self.advanced.append(0)

    def advance(self, amount: int) -> None:
        """Some of it is done."""
        self.advanced[-1] += amount
