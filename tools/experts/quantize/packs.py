"""Reads packs back: an expert's planes, values and nibbles, and whether they are what the quantizer makes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from kernels.common import planes
from serving.experts.storage.header import Header
from serving.experts.storage.reader import Container, Expect
from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import MATRICES, Checkpoint
from tools.experts.quantize import facts, numpy_form
from tools.experts.quantize.run import BASE_KIND, DELTA_KINDS

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A plane within a slot.

    Attributes:
        matrix: "w1", "w3" or "w2".
        kind: "codes", "scales", "fp4" or "quintal".
        rows: of the matrix.
        columns: of the matrix.
        offset: of its first byte in the slot.
        size: in bytes.
    """

    matrix: str
    kind: str
    rows: int
    columns: int
    offset: int
    size: int


def parts(hidden: int, intermediate: int, kind: str = "base") -> Iterator[Part]:
    """The planes of a slot in their order; kind: "base", "fp4" or "quintal"."""
    sizes = {
        "codes": planes.codes_bytes, "scales": planes.scales_bytes,
        "fp4": planes.nibbles_bytes, "quintal": planes.quintal_bytes,
    }  # fmt: skip
    offset = 0
    for matrix, (rows, columns) in planes.shapes(hidden, intermediate).items():
        for one in ("codes", "scales") if kind == "base" else (kind,):
            size = sizes[one](rows, columns)
            yield Part(matrix, one, rows, columns, offset, size)
            offset += size


class Pack:
    """A base pack, and its delta if there is one.

    Attributes:
        base: the container of 2-bit planes.
        delta: the container of deltas, or None.
        kind: "fp4", "quintal", or None without a delta.
        hidden: size of the model's hidden state.
        intermediate: size of an expert's.
    """

    def __init__(self, path: Path, delta: Path | None = None, expect: Expect | None = None) -> None:
        """Opens `path`, and `delta` if it is given.

        Raises UserError for what is no pack, of another quantizer, or not of one checkpoint.
        """
        wanted = expect or Expect(kind=BASE_KIND, quantizer_abi=facts.QUANTIZER_ABI)
        self.base = Container.open(path, wanted)
        header = self.base.header
        self.delta, self.kind = None, None
        try:
            self.hidden, self.intermediate = _geometry(header)
        except ValueError:
            self.base.close()
            raise UserError(f"{path}: its sidecar states no geometry of {header.slot_bytes:,} bytes a record") from None
        if delta is not None:
            abi, zero_mode = facts.QUANTIZER_ABI, header.zero_mode
            same = Expect(None, header.checkpoint, abi, zero_mode, experts=header.experts)
            self.delta = Container.open(delta, same)
            kinds = {value: key for key, value in DELTA_KINDS.items()}
            if self.delta.header.kind not in kinds:
                raise UserError(f"{delta}: holds {self.delta.header.kind}; expected {' or '.join(kinds)}")
            self.kind = kinds[self.delta.header.kind]

    def __enter__(self) -> "Pack":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes both."""
        self.base.close()
        if self.delta is not None:
            self.delta.close()

    def matrices(self, layer: int, expert: int) -> dict[str, tuple[Bytes, Bytes, Bytes | None]]:
        """Codes [rows, columns], scales [rows, columns / 32] and, with a delta, nibbles of w1, w3 and w2.

        Raises UserError for a record that is not there, damaged, or of which the delta is another's.
        """
        slot = np.frombuffer(self.base.read(layer, expert), dtype=np.uint8)
        cut = {(one.matrix, one.kind): one for one in parts(self.hidden, self.intermediate)}
        behind: dict[str, Part] = {}
        deltas = np.empty(0, dtype=np.uint8)
        if self.delta is not None and self.kind is not None:
            deltas = np.frombuffer(self.delta.read(layer, expert), dtype=np.uint8)
            behind = {one.matrix: one for one in parts(self.hidden, self.intermediate, self.kind)}
        found: dict[str, tuple[Bytes, Bytes, Bytes | None]] = {}
        for matrix in MATRICES:
            of_codes, of_scales = cut[matrix, "codes"], cut[matrix, "scales"]
            shape = of_codes.rows, of_codes.columns
            codes = planes.unpack_codes(_cut(slot, of_codes), *shape)
            nibbles = None
            if matrix in behind:
                nibbles = self._nibbles(
                    _cut(deltas, behind[matrix]), codes, f"layer {layer}, expert {expert}, {matrix}"
                )
            found[matrix] = codes, planes.unpack_scales(_cut(slot, of_scales), *shape), nibbles
        return found

    def values(self, layer: int, expert: int) -> dict[str, Doubles]:
        """The weights of w1, w3 and w2: of the delta where there is one, else of the two bits."""
        return {
            matrix: planes.decode(codes, scales) if nibbles is None else planes.decode_nibbles(nibbles, scales)
            for matrix, (codes, scales, nibbles) in self.matrices(layer, expert).items()
        }

    def _nibbles(self, delta: Bytes, codes: Bytes, where: str) -> Bytes:
        try:
            if self.kind == "quintal":
                return planes.unpack_quintal(delta, codes)
            nibbles = planes.unpack_nibbles(delta, *codes.shape)
        except ValueError as error:
            raise UserError(f"{self.base.path}: {where}: {error}; quantize both anew") from None
        if not np.array_equal(planes.to_codes(nibbles), codes):
            raise UserError(f"{self.base.path}: {where}: the delta belongs to other codes; quantize both anew")
        return nibbles


def differences(pack: Pack, checkpoint: Checkpoint, layer: int, expert: int) -> list[str]:
    """Where an expert's record is not what the quantizer's plain form makes of the checkpoint, in words."""
    zero_mode = pack.base.header.zero_mode or "auto"
    ones = [numpy_form.quantize(checkpoint.read(layer, expert, matrix), zero_mode) for matrix in MATRICES]
    base, delta = numpy_form.records(ones, pack.kind)
    found = _differ(np.frombuffer(pack.base.read(layer, expert), dtype=np.uint8), base, pack, "base")
    if pack.delta is not None and pack.kind is not None and delta is not None:
        found += _differ(np.frombuffer(pack.delta.read(layer, expert), dtype=np.uint8), delta, pack, pack.kind)
    return found


def _differ(there: Bytes, expected: Bytes, pack: Pack, kind: str) -> list[str]:
    found = []
    for part in parts(pack.hidden, pack.intermediate, kind):
        wrong = np.flatnonzero(_cut(there, part) != _cut(expected, part))
        if wrong.size:
            at = part.offset + int(wrong[0])
            found.append(
                f"{part.matrix} {part.kind}: {wrong.size:,} of {part.size:,} bytes differ, first byte {at:,} of the"
                f" slot: {there[at]}, expected {expected[at]}"
            )
    return found


def _geometry(header: Header) -> tuple[int, int]:
    """H and I that the header's records are of. Raises ValueError."""
    sizes: list[int] = []
    for name in ("hidden", "intermediate"):
        size = header.extra.get(name)
        if type(size) is not int or size <= 0 or size % planes.COLUMNS:
            raise ValueError(name)
        sizes.append(size)
    if planes.base_slot(*sizes) != header.slot_bytes:
        raise ValueError("slot_bytes")
    return sizes[0], sizes[1]


def _cut(slot: Bytes, part: Part) -> Bytes:
    return slot[part.offset : part.offset + part.size]
