"""What a container holds and where: kind, checkpoint, geometry. The numbers of docs/format-store.md."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.experts.storage.refusal import StorageError

SCHEMA = "moet.expert-records"
VERSION = 1
CHECKSUM = "crc64-nvme"
ALIGNMENT = 4096
TRAILER_BYTES = 4096
_LARGEST_FILE = 1 << 62

Key = tuple[int, int]


@dataclass(frozen=True)
class Header:
    """What a container holds.

    Attributes:
        kind: what a record is: "w2-pack", "mxfp4-store", ...; lower-case letters, digits and dashes.
        tag: a line for people, at most 200 characters.
        layers: numbers of the layers that have experts, ascending, as the checkpoint counts them.
        experts: experts of each layer.
        slot_bytes: bytes of a record.
        checkpoint: identity of the checkpoint that the records were made from, 64 hex digits.
        stride: bytes from one record to the next, a multiple of 4096; None: slot_bytes, rounded up to one.
        zero_mode: the quantizer's, or None where it has no meaning.
        quantizer_abi: the number of the quantizer's output format, or None.
        extra: more facts, as JSON has them.

    Raises StorageError on values out of range.
    """

    kind: str
    tag: str
    layers: tuple[int, ...]
    experts: int
    slot_bytes: int
    checkpoint: str
    stride: int | None = None
    zero_mode: str | None = None
    quantizer_abi: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(int(layer) for layer in self.layers))
        _require(re.fullmatch(r"[a-z0-9-]{1,32}", self.kind), "kind", self.kind, "lower-case letters, digits, dashes")
        _require(len(self.tag) <= 200 and self.tag.isprintable(), "tag", self.tag, "a line of at most 200 characters")
        numbers = bool(self.layers) and self.layers[0] >= 0 and self.layers[-1] < 1 << 20
        ascending = all(a < b for a, b in zip(self.layers, self.layers[1:], strict=False))
        _require(numbers and ascending, "layers", self.layers, "numbers of layers, ascending")
        _require(0 < self.experts < 1 << 20, "experts", self.experts, "a positive number")
        _require(0 < self.slot_bytes < 1 << 40, "slot_bytes", self.slot_bytes, "a positive number")
        if self.stride is None:
            object.__setattr__(self, "stride", padded(self.slot_bytes))
        aligned = self.step % ALIGNMENT == 0 and self.step >= self.slot_bytes
        _require(aligned, "stride", self.stride, f"a multiple of {ALIGNMENT}, at least {self.slot_bytes}")
        _require(re.fullmatch(r"[0-9a-f]{64}", self.checkpoint), "checkpoint", self.checkpoint, "64 hex digits")
        _require(self.apparent < _LARGEST_FILE, "size of the file", self.apparent, "less than 4 EiB")
        _require(isinstance(self.extra, Mapping), "extra", self.extra, "facts by name")
        try:
            if json.loads(json.dumps(self.extra, allow_nan=False)) != self.extra:
                raise ValueError("not what JSON gives back")
        except (TypeError, ValueError, RecursionError) as error:
            raise StorageError(f"extra: {error}; expected what JSON can hold, with names as keys") from None

    @property
    def step(self) -> int:
        """The stride, in bytes."""
        return self.stride or 0

    @property
    def read_bytes(self) -> int:
        """What a read of a record takes with O_DIRECT: slot_bytes rounded up to 4096."""
        return padded(self.slot_bytes)

    @property
    def apparent(self) -> int:
        """Bytes of the file of records, holes and trailer included."""
        return (self.layers[-1] + 1) * self.experts * self.step + TRAILER_BYTES

    @property
    def total(self) -> int:
        """How many records there can be."""
        return len(self.layers) * self.experts

    def offset(self, layer: int, expert: int) -> int:
        """Where a record begins. Raises StorageError where there is no such layer or expert."""
        if layer not in self._layer_set or not 0 <= expert < self.experts:
            raise StorageError(
                f"layer {layer}, expert {expert}: no such record; layers are {ranges(self.layers)}, "
                f"experts 0 to {self.experts - 1}"
            )
        return (layer * self.experts + expert) * self.step

    @property
    def _layer_set(self) -> frozenset[int]:
        found: frozenset[int] | None = self.__dict__.get("_set")
        if found is None:
            found = frozenset(self.layers)
            self.__dict__["_set"] = found
        return found

    def document(self) -> dict[str, Any]:
        """The header as the sidecar has it."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "kind": self.kind,
            "tag": self.tag,
            "checkpoint": self.checkpoint,
            "quantizer_abi": self.quantizer_abi,
            "zero_mode": self.zero_mode,
            "layers": list(self.layers),
            "experts": self.experts,
            "slot_bytes": self.slot_bytes,
            "stride": self.stride,
            "checksum": CHECKSUM,
            "extra": dict(self.extra),
        }


def padded(size: int) -> int:
    """`size` rounded up to 4096."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def ranges(numbers: tuple[int, ...]) -> str:
    """Ascending numbers for people: "0-2, 5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _require(holds: object, what: str, given: object, expected: str) -> None:
    if not holds:
        raise StorageError(f"{what}: {given!r}; expected {expected}")
