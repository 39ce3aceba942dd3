"""What vLLM 0.33.0's file-system tier keeps on disk, and what of it may be deleted when.

As read in vLLM's v1/kv_offload/{file_mapper,tiering/manager,tiering/async_lookup,tiering/fs/manager,tiering/fs/io}.py
and csrc/fs_io.cpp; patches/vllm-0.33.0/tests/test_kvcache.py holds it against those very classes.

    ROOT/<model>_<12 hex>/config.json                      fields, whose SHA-256 begins with the 12 digits
    ROOT/<model>_<12 hex>/.o_direct_probe_<number>.tmp     for a moment at start
    ROOT/<model>_<12 hex>_r<rank>/<hhh>/<hh>_g<group>/<hash>.bin                 a block; hhh, hh begin its hash
    ROOT/<model>_<12 hex>_r<rank>/<hhh>/<hh>_g<group>/<hash>.bin_<number>.tmp    a block that is being written

- Write: the folders are made, the temporary file is written and renamed. A block that is there is not written again.
  There is no index, no lock and no fsync.
- Look-up: access(2) on a thread of its own. The answer is kept, for all requests, while one of those runs that asked.
- Load: open and one read. That moves the access time as the mount has it; look-ups and writes that were spared move
  nothing. So the later one of access and modification time is the last use that can be known.
- A file that goes between look-up and load fails the load. The blocks before it in the batch are kept; it and those
  after it are marked as misses in the answers that are kept (AsyncLookupManager.mark_miss), and are computed. Whoever
  asks later is answered by access(2). A load that is open reads on. So a block may be deleted at any time, and nothing
  retries it: the price is one failed batch, which is why the blocks go that were not used for longest.
- A temporary file that goes while it is written fails that write, and the block is not kept. A write takes
  milliseconds; an hour later, its writer is dead.
- A folder must stay: the engine makes it and then opens a file in it, and the batch fails if it goes between the two.
  There are at most 4096 x 256 of them for each rank and group, and they are used again.
- config.json must stay: it is written at the engine's start only, and not where there is one, however it looks.
- With KV events, the engine says when it stored a block, and nobody says when it went.
"""

import enum
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

CONFIG = "config.json"

_BASE = re.compile(r".*_(?P<digest>[0-9a-f]{12})", re.DOTALL)
_RANK = re.compile(r"(?P<base>.*_[0-9a-f]{12})_r[0-9]+", re.DOTALL)
_FIRST = re.compile(r"[0-9a-f]{3}")
_SECOND = re.compile(r"(?P<digits>[0-9a-f]{2})_g[0-9]+")
_FILE = re.compile(r"(?P<hash>(?:[0-9a-f]{2})+)\.bin(?P<temporary>_[0-9]+\.tmp)?")
_PROBE = re.compile(r"\.o_direct_probe_[0-9]+\.tmp")


class Kind(enum.Enum):
    """What a file of the tier is."""

    BLOCK = enum.auto()
    TEMPORARY = enum.auto()


@dataclass(frozen=True)
class Config:
    """What a folder's config.json says about the blocks in it.

    Attributes:
        model: the model's name or path, as the server was given it.
        dtype: the KV cache's data type, such as `fp8_ds_mla`; the indexer's is not among the fields.
        canonical_format: the name of vLLM's portable byte layout, None for the cache's own.
        tokens: tokens that a block file holds, ascending; more than one number where groups differ.
    """

    model: str
    dtype: str
    canonical_format: str | None
    tokens: tuple[int, ...]


def base_of(name: str) -> str | None:
    """The base name that a folder in a tier's root has or belongs to (`<model>_<12 hex>`); None for any other name."""
    if match := _RANK.fullmatch(name):
        return match["base"]
    return name if _BASE.fullmatch(name) else None


def config_of(base: str, text: bytes) -> Config:
    """The config.json `text` of the folder `base`.

    Raises:
        ValueError: one line, without the path: it is not what the engine wrote for a folder of that name.
    """
    try:
        fields = json.loads(text)
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:12]
        groups = [group["tokens_per_block"] for group in fields["kv_cache_groups"]] or [fields["tokens_per_hash"]]
        tokens = sorted({int(each) * int(fields["blocks_per_file"]) for each in groups})
        model = str(fields["model_name"])
        found = Config(model, str(fields["dtype"]), _text(fields.get("canonical_format")), tuple(tokens))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("is not vLLM's: expected the JSON object of its file-system tier") from error
    expected = f"{model.replace('/', '_')}_{digest}"
    if base != expected:
        raise ValueError(f"belongs to another folder: its fields make the name {expected}")
    return found


def is_first(name: str) -> bool:
    """Whether it is the name of a folder in a rank's folder: the first three digits of hashes."""
    return _FIRST.fullmatch(name) is not None


def is_second(name: str) -> bool:
    """Whether it is the name of a folder with files: the next two digits and the group."""
    return _SECOND.fullmatch(name) is not None


def kind_of(first: str, second: str, name: str) -> Kind | None:
    """What the file `name` in the folder `first`/`second` is; None where the engine would not name one so there."""
    match, folder = _FILE.fullmatch(name), _SECOND.fullmatch(second)
    if match is None or folder is None or match["hash"][:5] != first + folder["digits"]:
        return None
    return Kind.TEMPORARY if match["temporary"] else Kind.BLOCK


def is_probe(name: str) -> bool:
    """Whether it is the name of the file with which the engine tries O_DIRECT, beside config.json."""
    return _PROBE.fullmatch(name) is not None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
