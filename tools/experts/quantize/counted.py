"""What was counted, of every expert of a model, in little memory."""

from array import array
from collections.abc import Iterator, Mapping

from tools.experts.quantize.facts import FIELDS, Counts

Key = tuple[int, int]
ByExpert = Mapping[Key, list[Counts]]

_NUMBERS = 16 + len(FIELDS)


class Counted(ByExpert):
    """(layer, expert), ascending, to the counts of its w1, w3 and w2; kept as plain numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Key, array[int]] = {}

    def put(self, key: Key, counts: list[Counts]) -> None:
        """Keeps the counts of an expert. Raises OverflowError beyond 64 bits."""
        self._numbers[key] = array("q", [number for one in counts for number in one.numbers()])

    def __getitem__(self, key: Key) -> list[Counts]:
        numbers = self._numbers[key].tolist()
        return [Counts.of(numbers[at : at + _NUMBERS]) for at in range(0, len(numbers), _NUMBERS)]

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def __iter__(self) -> Iterator[Key]:
        return iter(sorted(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)
