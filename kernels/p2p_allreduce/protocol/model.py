"""The protocol of p2p_allreduce as a state machine small enough to look at every state that it can be in.

What a block of a rank does in a round: it issues its stores (data, then arrivals) to every peer, waits for the arrivals
of every peer, reads what they delivered, and is done; the next round begins when all blocks are. A store is performed
in the peer's memory at any later time, in any order but where a fence orders them. A rank may be killed, which may lose
what is not performed yet, and may give up waiting.

What lets fewer states stand for all: stores are issued at once, since each may be performed arbitrarily late, unless
another block may make the rank give up in between; a rank is killed right after it issued, since all that others see of
it is which stores were performed; arrivals and data are looked at together, since it is an error in itself if one of
them changes while its round is not over; and the memory of a rank that reads no more is forgotten.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Deadlines(Enum):
    """When a rank may give up a peer."""

    NEVER = "never"
    DEAD = "once the peer is dead, and nobody who lives has given up"
    ANY_TIME = "at any time"


@dataclass(frozen=True)
class Design:
    """What the protocol has. Each part can be left out, to see that it is needed.

    Attributes:
        slots: data of how many rounds a workspace holds apart.
        released: arrivals are performed after the data that they speak of.
        acquired: data are read after their arrivals.
        stops: a rank that has given up writes no more.
        tells: a rank that gives up tells its peers.
        agrees: a block sends no arrival where one of its threads saw that the rank has given up, and stored nothing.
    """

    slots: int = 2
    released: bool = True
    acquired: bool = True
    stops: bool = True
    tells: bool = True
    agrees: bool = True


# Of one round: the pieces of the data that each block has.
Shape = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Setting:
    """What is run: ranks, the shape of each round, how many ranks may be killed, and when peers are given up."""

    ranks: int
    rounds: tuple[Shape, ...]
    kills: int = 0
    deadlines: Deadlines = Deadlines.NEVER


# A state is bytes: fields of ranks and their blocks, the memory of all ranks, then pairs (place, value) of the stores
# that are issued and not performed, sorted.
State = bytes
Store = tuple[int, int]

# Fields of a rank; behind them, the phase of each of its blocks.
_ALIVE, _GIVEN_UP, _ROUND, _PHASES = 0, 1, 2, 3
_AHEAD, _WAITING, _HAS_READ, _DONE = 0, 1, 2, 3
# From here on: how many pieces are issued by threads that saw that the rank has not given up; others have yet to look.
_ISSUING = 4
_ALL = slice(None)


class ProtocolError(Exception):
    """The protocol does what it must not; says what."""


class Machine:
    """Steps of a design in a setting."""

    def __init__(self, design: Design, setting: Setting) -> None:
        self.design, self.setting = design, setting
        self._last = len(setting.rounds)
        self._all = range(setting.ranks)
        self._stride = _PHASES + max(len(shape) for shape in setting.rounds)
        # Places in memory: kind, owner, slot, piece or block, sender.
        self._places: list[tuple[str, int, int, int, int]] = []
        self._at: dict[tuple[str, int, int, int, int], int] = {}
        pieces = {piece for shape in setting.rounds for block in shape for piece in block}
        for owner in self._all:
            for sender in self._peers(owner):
                for slot in range(design.slots):
                    self._add(*(("data", owner, slot, piece, sender) for piece in pieces))
                    self._add(*(("arrival", owner, slot, b, sender) for b in range(self._stride - _PHASES)))
                self._add(("abort", owner, 0, 0, sender))
        self._memory = setting.ranks * self._stride
        self._size = self._memory + len(self._places)
        if self._size > 256:
            raise ValueError(f"the setting has {self._size} places; expected at most 256")

    def start(self) -> State:
        """Everybody alive, ahead of round 1."""
        rank = bytes([1, 0, 1]) + bytes(self._stride - _PHASES)
        return rank * self.setting.ranks + bytes(len(self._places))

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen next. Raises ProtocolError where that must not."""
        yield from self._performed(state)
        for rank in self._all:
            if not self._field(state, rank, _ALIVE):
                continue
            number = self._field(state, rank, _ROUND)
            if self._may_be_killed(state, rank):
                yield f"{rank} is killed", self._forgotten(self._with(state, {rank * self._stride + _ALIVE: 0}))
            if number <= self._last:
                for block in range(len(self.setting.rounds[number - 1])):
                    yield from self._block(state, rank, number, block)

    def ended(self, state: State) -> None:
        """Raises ProtocolError where a state that nothing follows has a live rank in the midst of a round."""
        for rank in self._all:
            number = self._field(state, rank, _ROUND)
            if self._field(state, rank, _ALIVE) and number <= self._last:
                raise ProtocolError(f"{rank} is stuck in round {number}")

    def _add(self, *places: tuple[str, int, int, int, int]) -> None:
        for place in places:
            self._at[place] = self.setting.ranks * self._stride + len(self._places)
            self._places.append(place)

    def _peers(self, rank: int) -> list[int]:
        return [peer for peer in self._all if peer != rank]

    def _field(self, state: State, rank: int, field: int) -> int:
        return state[rank * self._stride + field]

    def _place(self, kind: str, owner: int, number: int, part: int, sender: int) -> int:
        return self._at[kind, owner, number % self.design.slots, part, sender]

    def _pending(self, state: State) -> list[Store]:
        rest = state[self._size :]
        return list(zip(rest[::2], rest[1::2], strict=True))

    def _with(self, state: State, changes: dict[int, int], issued: Sequence[Store] = ()) -> State:
        fields = bytearray(state[: self._size])
        for place, value in changes.items():
            fields[place] = value
        return bytes(fields) + _packed([*self._pending(state), *issued])

    def _reads(self, state: State, rank: int) -> bool:
        return (
            self._field(state, rank, _ALIVE) == 1
            and not self._field(state, rank, _GIVEN_UP)
            and self._field(state, rank, _ROUND) <= self._last
        )

    def _forgotten(self, state: State) -> State:
        """The state without the memory of ranks that read no more, what is on the way there, and where they were."""
        fields = bytearray(state[: self._size])
        gone = [rank for rank in self._all if not self._reads(state, rank)]
        for i, place in enumerate(self._places):
            if place[1] in gone:
                fields[self._memory + i] = 0
        for rank in gone:
            if not fields[rank * self._stride]:
                fields[rank * self._stride : (rank + 1) * self._stride] = bytes(self._stride)
        kept = [store for store in self._pending(state) if self._places[store[0] - self._memory][1] not in gone]
        return bytes(fields) + _packed(kept)

    def _may_be_killed(self, state: State, rank: int) -> bool:
        killed = sum(not self._field(state, other, _ALIVE) for other in self._all)
        phases = state[rank * self._stride + _PHASES : (rank + 1) * self._stride]
        return killed < self.setting.kills and (_WAITING in phases or self._field(state, rank, _GIVEN_UP) == 1)

    def _performed(self, state: State) -> Iterator[tuple[str, State]]:
        pending = self._pending(state)
        lost = [store for store in pending if self._field(state, self._places[store[0] - self._memory][4], _ALIVE)]
        if len(lost) < len(pending):
            yield "stores of the dead are lost", state[: self._size] + _packed(lost)
        for i, (place, value) in enumerate(pending):
            kind, owner, _, _, sender = self._places[place - self._memory]
            # Stores of one rank to one place keep their order; values of a place only grow.
            if (i and pending[i - 1][0] == place) or (self.design.released and self._is_held(place, value, pending)):
                continue
            if kind != "abort" and 0 < state[place] == self._field(state, owner, _ROUND):
                raise ProtocolError(f"{kind} of {sender} at {owner}, in round {state[place]}, becomes round {value}'s")
            rest = pending[:i] + pending[i + 1 :]
            said = f"{kind} of {sender} reaches {owner}"
            yield said, state[:place] + bytes([value]) + state[place + 1 : self._size] + _packed(rest)

    def _is_held(self, place: int, value: int, pending: list[Store]) -> bool:
        """Whether a store is an arrival whose data are not all there."""
        kind, owner, _, block, sender = self._places[place - self._memory]
        if kind != "arrival":
            return False
        pieces = self.setting.rounds[value - 1][block]
        return any((self._place("data", owner, value, piece, sender), value) in pending for piece in pieces)

    def _block(self, state: State, rank: int, number: int, block: int) -> Iterator[tuple[str, State]]:
        who = f"{rank}.{block} in round {number}"
        phase = self._field(state, rank, _PHASES + block)
        given_up = self._field(state, rank, _GIVEN_UP)
        at = rank * self._stride + _PHASES + block
        if phase == _AHEAD and given_up:
            issued = [] if self.design.stops else self._issued(state, rank, number, block)
            yield f"{who} ends", self._finished(state, rank, number, block, issued)
        elif phase == _AHEAD:
            yield f"{who} issues", self._with(state, {at: _WAITING}, self._issued(state, rank, number, block))
            if self.setting.deadlines is not Deadlines.NEVER and len(self.setting.rounds[number - 1]) > 1:
                for count in range(len(self.setting.rounds[number - 1][block])):
                    early = self._data(state, rank, number, block, slice(count))
                    yield f"{who} issues {count} pieces", self._with(state, {at: _ISSUING + count}, early)
        elif phase >= _ISSUING and given_up:
            issued = [] if self.design.agrees else self._arrivals(state, rank, number, block)
            yield f"{who} ends in the midst", self._finished(state, rank, number, block, issued)
        elif phase >= _ISSUING:
            rest = self._issued(state, rank, number, block, slice(phase - _ISSUING, None))
            yield f"{who} issues the rest", self._with(state, {at: _WAITING}, rest)
        elif phase == _WAITING and not self.design.acquired and not given_up:
            self._read(state, rank, number, block)
            yield f"{who} reads", self._with(state, {at: _HAS_READ})
        if phase in (_WAITING, _HAS_READ):
            yield from self._waiting(state, rank, number, block, phase)

    def _issued(self, state: State, rank: int, number: int, block: int, which: slice = _ALL) -> list[Store]:
        return self._data(state, rank, number, block, which) + self._arrivals(state, rank, number, block)

    def _data(self, state: State, rank: int, number: int, block: int, which: slice) -> list[Store]:
        pieces, listening = self.setting.rounds[number - 1][block][which], self._listening(state, rank)
        return [(self._place("data", peer, number, piece, rank), number) for peer in listening for piece in pieces]

    def _arrivals(self, state: State, rank: int, number: int, block: int) -> list[Store]:
        return [(self._place("arrival", peer, number, block, rank), number) for peer in self._listening(state, rank)]

    def _listening(self, state: State, rank: int) -> list[int]:
        return [peer for peer in self._peers(rank) if self._reads(state, peer)]

    def _waiting(self, state: State, rank: int, number: int, block: int, phase: int) -> Iterator[tuple[str, State]]:
        who = f"{rank}.{block} in round {number}"
        late = [p for p in self._peers(rank) if state[self._place("arrival", rank, number, block, p)] != number]
        given_up = self._field(state, rank, _GIVEN_UP)
        if not late and not given_up and (phase == _HAS_READ or self.design.acquired):
            if phase == _WAITING:
                self._read(state, rank, number, block)
            yield f"{who} is complete", self._finished(state, rank, number, block)
        elif given_up or self._gives_up(state, rank, late):
            told = [(self._at["abort", peer, 0, 0, rank], 1) for peer in self._listening(state, rank)]
            issued = [] if given_up or not self.design.tells else told
            after = self._with(state, {rank * self._stride + _GIVEN_UP: 1})
            yield f"{who} gives up", self._finished(after, rank, number, block, issued)

    def _gives_up(self, state: State, rank: int, late: Sequence[int]) -> bool:
        if any(state[self._at["abort", rank, 0, 0, peer]] for peer in self._peers(rank)):
            return True
        if self.setting.deadlines is not Deadlines.DEAD:
            return self.setting.deadlines is Deadlines.ANY_TIME and bool(late)
        nobody_has = not any(self._field(state, r, _ALIVE) and self._field(state, r, _GIVEN_UP) for r in self._all)
        return nobody_has and not all(self._field(state, peer, _ALIVE) for peer in late)

    def _read(self, state: State, rank: int, number: int, block: int) -> None:
        for peer in self._peers(rank):
            for piece in self.setting.rounds[number - 1][block]:
                found = state[self._place("data", rank, number, piece, peer)]
                if found != number:
                    raise ProtocolError(f"{rank} reads data of {peer} in round {number} and finds round {found}'s")

    def _finished(self, state: State, rank: int, number: int, block: int, issued: Sequence[Store] = ()) -> State:
        """Ends a block; the last one ends the launch, and the next may begin."""
        begin = rank * self._stride + _PHASES
        blocks = range(len(self.setting.rounds[number - 1]))
        changes = {begin + block: _DONE}
        if all(other == block or state[begin + other] == _DONE for other in blocks):
            changes = {begin + other: _AHEAD for other in blocks} | {begin - _PHASES + _ROUND: number + 1}
        return self._forgotten(self._with(state, changes, issued))


def _packed(stores: Sequence[Store]) -> bytes:
    return bytes(byte for store in sorted(stores) for byte in store)


def explore(design: Design, setting: Setting) -> int:
    """Looks at every state; returns how many there are.

    Raises ProtocolError, with the steps that lead there, at the first that must not be.
    """
    machine = Machine(design, setting)
    first = machine.start()
    reached: dict[State, tuple[State, str] | None] = {first: None}
    todo = [first]
    while todo:
        state = todo.pop()
        try:
            following = list(machine.steps(state))
            if not following:
                machine.ended(state)
        except ProtocolError as error:
            raise ProtocolError("; ".join([*_way(reached, state), str(error)])) from None
        for said, after in following:
            if after not in reached:
                reached[after] = (state, said)
                todo.append(after)
    return len(reached)


def _way(reached: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    said: list[str] = []
    while (step := reached[state]) is not None:
        state = step[0]
        said.append(step[1])
    return said[::-1]
