"""Where lines of one version of a file are in another version."""

import difflib
from collections.abc import Sequence
from functools import cached_property

_EDGE = 3
_CUT = 60


class Alignment:
    """Two versions of a file, their lines matched up. Regions are half-open and 0-based."""

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        self.old = old
        self.new = new

    @cached_property
    def _image(self) -> list[int | None]:
        image: list[int | None] = [None] * len(self.old)
        if self.old == self.new:
            return list(range(len(self.old)))
        for block in difflib.SequenceMatcher(None, self.old, self.new).get_matching_blocks():
            for offset in range(block.size):
                image[block.a + offset] = block.b + offset
        return image

    def kept(self, index: int) -> bool:
        """Whether line `index` of `old` is still there."""
        return self._at(index) is not None

    def region(self, start: int, end: int) -> tuple[int, int]:
        """The lines of `new` that stand where lines `start` to `end` of `old` stood.

        Edges that are gone give way to the nearest lines outside that are still there.
        """
        first = next((at for at in range(start, -1, -1) if self._at(at) is not None), None)
        last = next((at for at in range(end - 1, len(self.old)) if self._at(at) is not None), None)
        low = 0 if first is None else (self._at(first) or 0) + (0 if first == start else 1)
        high = len(self.new) if last is None else (self._at(last) or 0) + (1 if last == end - 1 else 0)
        return low, max(low, high)

    def change(self, start: int, end: int) -> list[str]:
        """How lines `start` to `end` of `old` became what stands in `new`: a small unified diff, without file names.

        Empty where nothing changed there.
        """
        low, high = self.region(start, end)
        before, after = list(self.old[start:end]), list(self.new[low:high])
        if before == after:
            return []
        lines: list[str] = []
        for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_EDGE):
            old_at, new_at = start + group[0][1], low + group[0][3]
            old_count, new_count = group[-1][2] - group[0][1], group[-1][4] - group[0][3]
            lines.append(f"@@ -{_range(old_at, old_count)} +{_range(new_at, new_count)} @@")
            for tag, old_from, old_to, new_from, new_to in group:
                if tag == "equal":
                    lines += [" " + _text(line) for line in before[old_from:old_to]]
                    continue
                lines += ["-" + _text(line) for line in before[old_from:old_to]]
                lines += ["+" + _text(line) for line in after[new_from:new_to]]
        return lines if len(lines) <= _CUT else [*lines[:_CUT], f"({len(lines) - _CUT} more lines)"]

    def _at(self, index: int) -> int | None:
        return self._image[index] if 0 <= index < len(self._image) else None


def _range(start: int, count: int) -> str:
    shown = start + 1 if count else start
    return f"{shown}" if count == 1 else f"{shown},{count}"


def _text(line: bytes) -> str:
    return line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
