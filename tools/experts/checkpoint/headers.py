"""What a safetensors file says of its tensors, without their data."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    Raises UserError when the file is no safetensors file, or shorter than its header says.
    """
    try:
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
    tensors = _tensors(path, raw, 8 + length)
    needed = max((one.offset + one.size for one in tensors.values()), default=8 + length)
    if size < needed:
        raise UserError(f"{path}: truncated: {size} bytes, its header says {needed}; fetch it again")
    return raw, tensors


def _tensors(path: Path, raw: bytes, start: int) -> dict[str, Tensor]:
    try:
        stated = json.loads(raw)
        return {name: _tensor(path, one, start) for name, one in stated.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: its safetensors header cannot be read ({error}); fetch it again") from None


def _tensor(path: Path, stated: dict[str, Any], start: int) -> Tensor:
    dtype, (begin, end) = str(stated["dtype"]), (int(at) for at in stated["data_offsets"])
    shape = tuple(int(extent) for extent in stated["shape"])
    if not 0 <= begin <= end or any(extent < 0 for extent in shape):
        raise ValueError(f"offsets {begin}, {end} of shape {list(shape)}")
    if dtype in ITEM_BYTES and end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError(f"{end - begin} bytes for {dtype} {list(shape)}")
    return Tensor(path, dtype, shape, start + begin, end - begin)
