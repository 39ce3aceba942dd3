"""The size that a safetensors file must have, and the tensors in it, by its own header.

A file is 8 bytes, the header's length as a little-endian integer; the header, a JSON object of tensor to dtype, shape
and data_offsets, [begin, end) in bytes after the header; and the data (safetensors' README, "Format").
"""

import os
from dataclasses import dataclass
from pathlib import Path

from serving.preflight import documents
from serving.preflight.documents import DocumentError

# What safetensors' own reader takes at most.
_HEADER_LIMIT = 100_000_000


@dataclass(frozen=True)
class Shard:
    """A file: bytes that it has, bytes that it must have, and the names of its tensors."""

    size: int
    expected: int
    tensors: frozenset[str]


class TruncatedError(Exception):
    """A file that ends before its header does; the message has found and expected bytes."""


def read(path: Path) -> Shard:
    """Reads the header of a file. Raises OSError, TruncatedError, and DocumentError for what is no safetensors file."""
    with os.fdopen(documents.open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        if len(prefix) < 8:
            raise TruncatedError(f"has {size:,} bytes, expected 8 and a header")
        length = int.from_bytes(prefix, "little")
        if length > _HEADER_LIMIT:
            raise DocumentError(f"is no safetensors file: a header of {length:,} bytes, more than {_HEADER_LIMIT:,}")
        if size < 8 + length:
            raise TruncatedError(f"has {size:,} bytes, its header alone ends at {8 + length:,}")
        header = documents.parse(file.read(length))
    tensors = {name: value for name, value in header.items() if name != "__metadata__"}
    ends = [_end(name, value) for name, value in tensors.items()]
    return Shard(size, 8 + length + max(ends, default=0), frozenset(tensors))


def _end(name: str, value: object) -> int:
    offsets = value.get("data_offsets") if isinstance(value, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and all(type(one) is int for one in offsets):
        begin, end = offsets
        if 0 <= begin <= end:
            return int(end)
    raise DocumentError(f"is no safetensors file: {name}: expected data_offsets of two integers, found {offsets!r}")
