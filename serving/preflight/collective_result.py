"""What the collective program (collective.py) found, read from its document."""

from dataclasses import dataclass
from typing import Literal

from images.manifest import model
from images.manifest.model import DataError

# done: to the end, whatever came out; hung: silent for too long, and killed.
State = Literal["done", "failed", "hung"]
_ROW = 10 << 10
_BULK = 64 << 20


@dataclass(frozen=True)
class Copies:
    """Copies from every GPU to every other; pairs are (from, to), by place in the launch.

    Attributes:
        state: how it ended.
        where: places where processes were that came to no end.
        errors: of processes that failed.
        closed: pairs whose first may not read the second's memory; they copy through the host's.
        wrong: pairs whose copy had other bytes.
    """

    state: State
    where: tuple[str, ...]
    errors: tuple[str, ...]
    closed: tuple[tuple[int, ...], ...]
    wrong: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Sum:
    """Sums of one size: the slowest process's median time in microseconds, and whether all came out right."""

    bytes: int
    microseconds: float
    right: bool


@dataclass(frozen=True)
class Group:
    """Sums of GPUs that hold one copy of a model together.

    Attributes:
        devices: the GPUs, by place in the launch.
        state: how it ended.
        where: places where processes were that came to no end.
        errors: of processes that failed.
        sums: a size each; of sizes that were finished by all.
        nccl: version; "" where no process came so far.
        ways: how NCCL sends (P2P/CUMEM, SHM/direct, NET/Socket), and on how many channels.
        warnings: the last of NCCL's own.
    """

    devices: tuple[int, ...]
    state: State
    where: tuple[str, ...]
    errors: tuple[str, ...]
    sums: tuple[Sum, ...]
    nccl: str
    ways: dict[str, int]
    warnings: tuple[str, ...]

    @property
    def wrong(self) -> list[int]:
        """The sizes in bytes whose sums did not come out."""
        return [one.bytes for one in self.sums if not one.right]

    @property
    def bad(self) -> bool:
        """Whether it hung or came out wrong, as it does where reads between GPUs do not work."""
        return self.state == "hung" or bool(self.wrong)

    @property
    def row_us(self) -> float:
        """Microseconds of a sum of 10 KiB, a token's row."""
        return next(one.microseconds for one in self.sums if one.bytes == _ROW)

    @property
    def rate(self) -> float:
        """Bytes a second on each link in a sum of 64 MiB, as NCCL's own tests count it."""
        ranks = len(self.devices)
        return next(_BULK * 2 * (ranks - 1) / ranks / one.microseconds * 1e6 for one in self.sums if one.bytes == _BULK)


@dataclass(frozen=True)
class Document:
    """All of it; without torch in the image there is nothing."""

    schema: Literal["moet.all-reduce.v1"]
    torch: bool
    copies: Copies | None
    groups: tuple[Group, ...]


def parse(line: str, gpus: int) -> Document | None:
    """The document of `gpus` GPUs that a line of the program's output is; None for any other line."""
    try:
        found = model.decode(Document, model.loads(line.encode()))
    except DataError:
        return None
    pairs = (*found.copies.closed, *found.copies.wrong) if found.copies else ()
    named = [*(group.devices for group in found.groups), *pairs]
    whole = all({_ROW, _BULK} <= {one.bytes for one in group.sums} for group in found.groups if group.state == "done")
    return found if whole and all(0 <= one < gpus for places in named for one in places) else None
