"""A step that misses, against the worst that an engine and other steps can do.

Up to the first layer with a miss the routing is what it truly is (cell `layer * experts`, which stands for any);
behind it the engine may ask for anything. Between passes anything that is not held may be evicted, and a fetch may find
no room.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np

from .. import replay
from ..replay import Again, Finish, Phase, Replay, ReplayError
from .explorer import ProtocolError

MACHINE = SimpleNamespace(
    passed=replay.passed, routed=replay.routed, last_layer=replay.last_layer, no_room=replay.no_room
)


@dataclass(frozen=True)
class State:
    """The machine, what is resident and held, passes so far, and the layer that a pass by layers is at (-1: none)."""

    machine: Replay
    resident: frozenset[int]
    held: frozenset[int] = frozenset()
    passes: int = 0
    due: frozenset[int] = frozenset()


class ReplayWorld:
    """All that can happen to a step.

    Args:
        layers: layers.
        experts: experts of each.
        rows: rows of the step.
        limit: replays of the whole step.
        whole_fits: whether what a whole step asks for always fits; else a fetch for it may find no room.
        machine: the functions of replay.py, or broken ones.
    """

    def __init__(
        self, layers: int, experts: int, rows: int = 1, limit: int = 3, whole_fits: bool = True,
        machine: SimpleNamespace = MACHINE,
    ) -> None:  # fmt: skip
        self.layers, self.experts, self.whole_fits, self.machine = layers, experts, whole_fits, machine
        self.rows, self.limit = rows, limit
        # Passes of the longest way that was looked at.
        self.most = 0
        self.true = frozenset(layer * experts for layer in range(layers))

    def start(self) -> State:
        """Nothing is resident."""
        return State(Replay(self.experts, self.layers, self.rows, self.limit), frozenset())

    def key(self, state: State) -> bytes:
        """Equal for states that go on alike."""
        return repr(
            (state.machine, sorted(state.resident), sorted(state.held), state.passes, sorted(state.due))
        ).encode()

    def ended(self, state: State) -> None:
        """Done, or split where there was no room."""
        if state.machine.phase not in (Phase.DONE, Phase.SPLIT):
            raise ProtocolError(f"the step ends {state.machine.phase.value}")

    def check(self, state: State) -> None:
        """Misses are errors where they happen: in steps."""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen next."""
        machine = state.machine
        self.most = max(self.most, state.passes)
        if machine.phase in (Phase.DONE, Phase.SPLIT):
            return
        for cell in sorted(state.resident - state.held):
            yield f"{cell} is evicted", replace(state, resident=state.resident - {cell})
        try:
            if machine.phase is Phase.WHOLE:
                yield from self._whole(state)
            else:
                yield from self._layer(state)
        except ReplayError as error:
            raise ProtocolError(str(error)) from None

    def _whole(self, state: State) -> Iterator[tuple[str, State]]:
        passes = state.passes + 1
        if passes > replay.passes(state.machine):
            raise ProtocolError(f"pass {passes}, expected at most {replay.passes(state.machine)}")
        first = next((layer for layer in range(self.layers) if layer * self.experts not in state.resident), self.layers)
        free = [[layer * self.experts + e for e in range(self.experts)] for layer in range(first + 1, self.layers)]
        certain = [layer * self.experts for layer in range(min(first + 1, self.layers))]
        for rest in product(*free):
            used = np.array([*certain, *rest], np.intp)
            missed = np.array([cell for cell in used.tolist() if cell not in state.resident], np.intp)
            after, action = self.machine.passed(state.machine, used, missed)
            said = f"a pass asks for {used.tolist()}, misses {missed.tolist()}"
            if isinstance(action, Finish):
                if missed.size or set(used.tolist()) != self.true:
                    raise ProtocolError(f"{said}, and is taken for right")
                yield said, replace(state, machine=after, held=frozenset(), passes=passes)
            elif isinstance(action, Again):
                yield from self._again(state, after, action, said, passes)
            else:
                yield said, replace(state, machine=after, held=frozenset(), passes=passes)

    def _again(self, state: State, after: Replay, action: Again, said: str, passes: int) -> Iterator[tuple[str, State]]:
        held = frozenset(action.hold.tolist())
        resident = state.resident | frozenset(action.must.tolist())
        some = action.some.tolist()
        for count in range(len(some) + 1):
            for come in combinations(some, count):
                yield f"{said}; {list(come)} come too", State(after, resident | set(come), held, passes)
        if not self.whole_fits:
            machine, _ = self.machine.no_room(after)
            yield f"{said}; no room", State(machine, state.resident, frozenset(), passes)

    def _layer(self, state: State) -> Iterator[tuple[str, State]]:
        machine, passes = state.machine, state.passes
        if state.due:
            if not state.due <= state.resident:
                raise ProtocolError(f"a layer is computed without {sorted(state.due - state.resident)}")
            done = replace(state, due=frozenset(), held=frozenset())
            if machine.layer == self.layers:
                after, _ = self.machine.last_layer(machine)
                done = replace(done, machine=after)
            yield f"layer {machine.layer - 1} is computed", done
            return
        if machine.layer == 0:
            passes += 1
            if passes > replay.passes(machine):
                raise ProtocolError(f"pass {passes}, expected at most {replay.passes(machine)}")
        used = np.array([machine.layer * self.experts], np.intp)
        missing = np.array([cell for cell in used.tolist() if cell not in state.resident], np.intp)
        after, need = self.machine.routed(machine, used, missing)
        held, must = frozenset(need.hold.tolist()), frozenset(need.must.tolist())
        yield (
            f"layer {machine.layer} asks for {used.tolist()}",
            State(after, state.resident | must, held, passes, frozenset(used.tolist())),
        )
        if machine.rows > 1 and missing.size:
            split, _ = self.machine.no_room(after)
            yield f"no room for {missing.tolist()}", replace(state, machine=split, held=frozenset(), passes=passes)
