"""What a safetensors file says of its tensors, without their data."""

import json
import math
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from tools.cli.errors import UserError

# safetensors' own limit.
MOST_HEADER = 100_000_000

ITEM_BYTES = {"U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "BOOL": 1, "BF16": 2, "F16": 2, "I16": 2,
              "U16": 2, "F32": 4, "I32": 4, "U32": 4, "F64": 8, "I64": 8, "U64": 8}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies.

    Attributes:
        path: its file.
        dtype: as safetensors writes it, "F8_E4M3".
        shape: of the stored array.
        offset: of its first byte in the file.
        size: in bytes.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def read(path: Path) -> tuple[bytes, dict[str, Tensor]]:
    """The header of a file, byte for byte, and its tensors by name.

    Raises UserError when the file is no safetensors file, or of another size than its header says, and where tensors
    overlap or leave bytes between them, which safetensors' own readers refuse too.
    """
    try:
        regular(path)
        with path.open("rb") as stream:
            length = int.from_bytes(start := stream.read(8), "little")
            if len(start) < 8 or not 2 <= length <= MOST_HEADER:
                raise UserError(f"{path}: no safetensors file (its header would have {length} bytes)")
            raw = stream.read(length)
            size = stream.seek(0, 2)
    except FileNotFoundError:
        raise UserError(f"{path}: not there; the checkpoint is incomplete, fetch it again") from None
    if len(raw) < length:
        raise UserError(f"{path}: truncated: its header has {length} bytes, the file {size}; fetch it again")
    try:
        tensors, needed = _tensors(path, raw, 8 + length)
    except ValueError as error:
        raise UserError(f"{path}: its safetensors header cannot be read ({error}); fetch it again") from None
    if size != needed:
        word = "truncated: " if size < needed else ""
        raise UserError(f"{path}: {word}{size} bytes, its header says {needed}; fetch it again")
    return raw, tensors


def regular(path: Path) -> None:
    """Raises UserError where there is something else than a file; FileNotFoundError, OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError(f"{path}: no regular file; expected one of a checkpoint")


def parsed(raw: bytes, once: bool = False) -> object:
    """What JSON in UTF-8 says; with `once`, an object has no name twice. Raises ValueError."""
    try:
        return json.loads(raw.decode(), object_pairs_hook=_once if once else None)
    except RecursionError:
        raise ValueError("too deep") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is in it twice")
    return found


def _tensors(path: Path, raw: bytes, start: int) -> tuple[dict[str, Tensor], int]:
    """The tensors, and how long the file is with them. Raises ValueError."""
    stated = parsed(raw, once=True)
    if not isinstance(stated, dict):
        raise ValueError("expected an object")
    found = {name: _tensor(path, name, one, start) for name, one in stated.items() if name != "__metadata__"}
    end = start
    for name, one in sorted(found.items(), key=lambda item: (item[1].offset, item[1].size)):
        if one.offset != end:
            raise ValueError(f"{name} begins at {one.offset - start}, not {end - start}: tensors {_GAP}")
        end += one.size
    return found, end


_GAP = "overlap, or leave bytes between them"


def _tensor(path: Path, name: str, stated: object, start: int) -> Tensor:
    if not name.isprintable():
        raise ValueError(f"a tensor is called {name!r}")
    if not isinstance(stated, dict):
        raise ValueError(f"{name}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = stated.get("dtype"), stated.get("shape"), stated.get("data_offsets")
    if not isinstance(dtype, str) or not dtype.isprintable():
        raise ValueError(f"{name}: dtype {dtype!r}")
    if not _sizes(shape):
        raise ValueError(f"{name}: shape {shape}")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{name}: data_offsets {offsets}")
    begin, end = offsets
    if dtype in ITEM_BYTES and end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError(f"{name}: {end - begin} bytes for {dtype} {shape}")
    return Tensor(path, dtype, tuple(shape), start + begin, end - begin)


def _sizes(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(one) is int and one >= 0 for one in values)
