"""The protocol of p2p_allreduce as a state machine small enough to look at every state that it can be in.

What a block of a rank does in a round: it issues its stores (data, then arrivals) to every peer, waits for the arrivals
of every peer, reads what they delivered, and is done; the next round begins when all blocks are. A store is performed
in the peer's memory at any later time, in any order but where a fence orders them. A rank may be killed, which may lose
what is not performed yet, and may give up waiting. In a round of the low-latency protocol (LL) nothing is ordered: the
pieces are words that carry a flag, the round modulo some number, and a block waits for its arrivals and for all of its
words to carry the round's flag. So that no word outlives its flag, now and then all that a round does not store itself
is aged: stored anew with the flag of the round before, ahead of what that round stores for peers to wait for.

What lets fewer states stand for all: stores are issued at once, since each may be performed arbitrarily late, unless
another block may make the rank give up in between; a rank is killed right after it issued, since all that others see of
it is which stores were performed; arrivals and data are looked at together, since it is an error in itself if one of
them changes while its round is not over, or if a word is there to be taken that is not of the round whose flag it
carries; what a block ages is issued by all of its threads or by none; and the memory of a rank that reads no more is
forgotten.
"""

from collections.abc import Collection, Iterator, Sequence
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
        agrees: a block sends no arrival where one of its threads saw that the rank has given up, and stored nothing; of
            LL, where each word speaks for itself, nobody asks that.
        flags: how many flags a word may carry, an even number, before the first comes again; 0 for one each round.
        compares: a word is taken if it carries the flag of the round, not any flag.
        ages: of how many rounds the first two, one of each parity, age words; 0 for none.
        ages_ahead: what a block ages is performed ahead of what it stores for peers to wait for.
        spares: the words that a round stores itself are not aged in it.
    """

    slots: int = 2
    released: bool = True
    acquired: bool = True
    stops: bool = True
    tells: bool = True
    agrees: bool = True
    flags: int = 0
    compares: bool = True
    ages: int = 0
    ages_ahead: bool = True
    spares: bool = True


# Of one round: the pieces of the data that each block has.
Shape = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Setting:
    """What is run: ranks, the shape of each round, how many may be killed, when peers are given up, and LL's rounds."""

    ranks: int
    rounds: tuple[Shape, ...]
    kills: int = 0
    deadlines: Deadlines = Deadlines.NEVER
    ll: Collection[int] = ()


# A state is bytes: fields of ranks and their blocks, the memory of all ranks, then pairs (place, value) of the stores
# that are issued and not performed, sorted.
State = bytes
Store = tuple[int, int]
# A value is twice the round in which it was stored, and one more where that round aged the place.

# Fields of a rank; behind them, the phase of each of its blocks.
_ALIVE, _GIVEN_UP, _ROUND, _PHASES = 0, 1, 2, 3
_AHEAD, _WAITING, _HAS_READ, _DONE = 0, 1, 2, 3
# From here on, a bit for each part of what the block issues: those of threads that saw that the rank has not given up.
# The other threads have yet to look.
_ISSUING = 4


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
        self._pieces = {"data": set[int](), "word": set[int]()}
        for number, shape in enumerate(setting.rounds, 1):
            self._pieces[self._kind(number)].update(piece for block in shape for piece in block)
        for owner in self._all:
            for sender in self._peers(owner):
                for slot in range(design.slots):
                    for kind, pieces in self._pieces.items():
                        self._add(*((kind, owner, slot, piece, sender) for piece in sorted(pieces)))
                    self._add(*(("arrival", owner, slot, b, sender) for b in range(self._stride - _PHASES)))
                self._add(("abort", owner, 0, 0, sender))
        self._memory = setting.ranks * self._stride
        self._size = self._memory + len(self._places)
        if self._size > 256:
            raise ValueError(f"the setting has {self._size} places; expected at most 256")

        self._ahead = self._orders()

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

    def _kind(self, number: int) -> str:
        """What the pieces of a round are."""
        return "word" if number in self.setting.ll else "data"

    def _orders(self) -> dict[Store, list[Store]]:
        """What must be performed ahead of a store: data ahead of arrivals, and what a block ages ahead of both."""
        ahead: dict[Store, list[Store]] = {}
        for number, shape in enumerate(self.setting.rounds, 1):
            kind, value = self._kind(number), 2 * number
            for block, pieces in enumerate(shape):
                for owner, sender in ((o, s) for o in self._all for s in self._peers(o)):
                    stores = [(self._place(kind, owner, number, piece, sender), value) for piece in pieces]
                    words = self._aged(number, block) if self.design.ages_ahead else []
                    aged = [(self._place("word", owner, number, word, sender), value + 1) for word in words]
                    arrival = self._place("arrival", owner, number, block, sender), value
                    ahead[arrival] = aged + (stores if kind == "data" and self.design.released else [])
                    ahead.update((store, aged) for store in stores if kind == "word")
        return ahead

    def _aged(self, number: int, block: int) -> list[int]:
        """The words that a block ages: the blocks of a launch take turns."""
        shape = self.setting.rounds[number - 1]
        ages = self.design.ages > 0 and number % self.design.ages < 2
        stored = {piece for pieces in shape for piece in pieces}
        spared = stored if self._kind(number) == "word" and self.design.spares else set[int]()
        return sorted(self._pieces["word"] - spared)[block :: len(shape)] if ages else []

    def _flag(self, value: int) -> int:
        number = value // 2 - value % 2
        return number % self.design.flags if self.design.flags else number

    def _carries(self, value: int, number: int) -> bool:
        """Whether a block of a round takes a word of this value."""
        return self._flag(value) == self._flag(2 * number) if self.design.compares else self._flag(value) != 0

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
        gone = [rank for rank in self._all if not self._reads(state, rank)]
        if not gone:
            return state
        fields = bytearray(state[: self._size])
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
        alive = [self._field(state, rank, _ALIVE) for rank in self._all]
        if not all(alive):
            kept = [store for store in pending if alive[self._places[store[0] - self._memory][4]]]
            if len(kept) < len(pending):
                yield "stores of the dead are lost", state[: self._size] + _packed(kept)
        first = 0
        for i, (place, value) in enumerate(pending):
            kind, owner, _, _, sender = self._places[place - self._memory]
            # Stores of one rank to one place keep their order, but for those of one round.
            first = first if pending[first][0] == place else i
            ahead = self._ahead.get((place, value), ())
            if pending[first][1] // 2 < value // 2 or any(store in pending for store in ahead):
                continue
            number = self._field(state, owner, _ROUND)
            if kind != "abort" and state[place] == 2 * number:
                raise ProtocolError(f"{kind} of {sender} at {owner}, in round {number}, becomes {_named(value)}")
            rest = pending[:i] + pending[i + 1 :]
            said = f"{'aged ' if value % 2 and kind == 'word' else ''}{kind} of {sender} reaches {owner}"
            yield said, state[:place] + bytes([value]) + state[place + 1 : self._size] + _packed(rest)

    def _block(self, state: State, rank: int, number: int, block: int) -> Iterator[tuple[str, State]]:
        who = f"{rank}.{block} in round {number}"
        phase = self._field(state, rank, _PHASES + block)
        given_up = self._field(state, rank, _GIVEN_UP)
        at = rank * self._stride + _PHASES + block
        if phase == _AHEAD or phase >= _ISSUING:
            yield from self._issuing(state, rank, number, block, phase)
        if phase == _WAITING and self._kind(number) == "data" and not self.design.acquired and not given_up:
            self._read(state, rank, number, block)
            yield f"{who} reads", self._with(state, {at: _HAS_READ})
        if phase in (_WAITING, _HAS_READ):
            yield from self._waiting(state, rank, number, block, phase)

    def _issuing(self, state: State, rank: int, number: int, block: int, phase: int) -> Iterator[tuple[str, State]]:
        who, at = f"{rank}.{block} in round {number}", rank * self._stride + _PHASES + block
        given_up = self._field(state, rank, _GIVEN_UP)
        ll = self._kind(number) == "word"
        parts = self._parts(state, rank, number, block)
        everything = (1 << len(parts)) - 1
        # Where a round of LL ages, a barrier keeps back all that follows until all threads have looked.
        at_once = 1 if ll and self._aged(number, block) else everything
        if phase == _AHEAD and given_up:
            issued = [] if self.design.stops else _chosen(parts, everything)
            yield f"{who} ends", self._finished(state, rank, number, block, issued)
        elif phase == _AHEAD:
            yield f"{who} issues", self._with(state, {at: _WAITING}, _chosen(parts, everything))
            if self.setting.deadlines is not Deadlines.NEVER and len(self.setting.rounds[number - 1]) > 1:
                # Any threads may have looked, which matters where each part counts for itself; else how many is enough.
                for seen in range(everything) if ll else [(1 << count) - 1 for count in range(len(parts) - 1)]:
                    early = _chosen(parts, seen & at_once)
                    yield f"{who} issues {seen:b} of its parts", self._with(state, {at: _ISSUING + seen}, early)
        elif given_up:
            others = 0 if self.design.agrees or ll else 1 << len(parts) - 1
            issued = _chosen(parts, (phase - _ISSUING) & ~at_once | others)
            yield f"{who} ends in the midst", self._finished(state, rank, number, block, issued)
        else:
            rest = _chosen(parts, everything & ~((phase - _ISSUING) & at_once))
            yield f"{who} issues the rest", self._with(state, {at: _WAITING}, rest)

    def _parts(self, state: State, rank: int, number: int, block: int) -> list[list[Store]]:
        """What a block issues, in parts: what it ages, if anything, then each piece, and at last the arrivals."""
        listening = self._listening(state, rank)

        def to_all(kind: str, part: int, value: int) -> list[Store]:
            return [(self._place(kind, peer, number, part, rank), value) for peer in listening]

        aged = [store for piece in self._aged(number, block) for store in to_all("word", piece, 2 * number + 1)]
        pieces = [to_all(self._kind(number), piece, 2 * number) for piece in self.setting.rounds[number - 1][block]]
        return ([aged] if self._aged(number, block) else []) + pieces + [to_all("arrival", block, 2 * number)]

    def _listening(self, state: State, rank: int) -> list[int]:
        return [peer for peer in self._peers(rank) if self._reads(state, peer)]

    def _waiting(self, state: State, rank: int, number: int, block: int, phase: int) -> Iterator[tuple[str, State]]:
        who = f"{rank}.{block} in round {number}"
        late = [p for p in self._peers(rank) if state[self._place("arrival", rank, number, block, p)] != 2 * number]
        given_up = self._field(state, rank, _GIVEN_UP)
        if self._kind(number) == "word" and not given_up:
            late += self._lacking(state, rank, number, block)
        if not late and not given_up and (phase == _HAS_READ or self.design.acquired):
            if phase == _WAITING and self._kind(number) == "data":
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
                if found != 2 * number:
                    raise ProtocolError(f"{rank} reads data of {peer} in round {number} and finds {_named(found)}")

    def _lacking(self, state: State, rank: int, number: int, block: int) -> list[int]:
        """The peers of whose words a block lacks some. Each is taken as soon as it carries the flag of the round."""
        lacking = []
        for peer in self._peers(rank):
            for piece in self.setting.rounds[number - 1][block]:
                found = state[self._place("word", rank, number, piece, peer)]
                if not self._carries(found, number):
                    lacking.append(peer)
                elif found != 2 * number:
                    raise ProtocolError(f"{rank} takes a word of {peer} in round {number} that is {_named(found)}")
        return lacking

    def _finished(self, state: State, rank: int, number: int, block: int, issued: Sequence[Store] = ()) -> State:
        """Ends a block; the last one ends the launch, and the next may begin."""
        begin = rank * self._stride + _PHASES
        blocks = range(len(self.setting.rounds[number - 1]))
        changes = {begin + block: _DONE}
        if all(other == block or state[begin + other] == _DONE for other in blocks):
            changes = {begin + other: _AHEAD for other in blocks} | {begin - _PHASES + _ROUND: number + 1}
        return self._forgotten(self._with(state, changes, issued))


def _chosen(parts: list[list[Store]], which: int) -> list[Store]:
    return [store for i, part in enumerate(parts) if which >> i & 1 for store in part]


def _named(value: int) -> str:
    return f"round {value // 2}'s" if value % 2 == 0 else f"aged in round {value // 2}"


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
