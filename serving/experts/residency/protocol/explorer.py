"""Looks at every state that a machine can get into."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol, TypeVar

S = TypeVar("S")


class ProtocolError(Exception):
    """The machine does what it must not; says what, and the events that lead there."""


class World(Protocol[S]):
    """A machine with all that can happen to it."""

    def start(self) -> S:
        """The first state."""

    def key(self, state: S) -> bytes:
        """Equal for states that go on alike."""

    def check(self, state: S) -> None:
        """Raises ProtocolError where a state is none that may be."""

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """What can happen next, and the state after it. Raises ProtocolError where that must not."""

    def ended(self, state: S) -> None:
        """Raises ProtocolError where a state that nothing follows must not be the last."""


def explore(world: World[S], limit: int = 2_000_000) -> int:
    """Looks at every state; returns how many there are.

    Raises ProtocolError, with the events that lead there, at the first that must not be, and RuntimeError where there
    are more than `limit`.
    """
    first = world.start()
    reached: dict[bytes, tuple[bytes, str] | None] = {world.key(first): None}
    # Oldest first: the way to an error is one of the shortest.
    todo = deque([first])
    while todo:
        state = todo.popleft()
        key = world.key(state)
        following = world.steps(state)
        any_follows = False
        try:
            for said, after in following:
                any_follows = True
                # Before its key is looked up: a state that may not be can look like one that may.
                try:
                    world.check(after)
                except ProtocolError as error:
                    raise ProtocolError(f"{said}; {error}") from None
                key_after = world.key(after)
                if key_after not in reached:
                    reached[key_after] = (key, said)
                    todo.append(after)
            if not any_follows:
                world.ended(state)
        except ProtocolError as error:
            raise ProtocolError("; ".join([*_way(reached, key), str(error)])) from None
        if len(reached) > limit:
            raise RuntimeError(f"more than {limit} states")
    return len(reached)


def _way(reached: dict[bytes, tuple[bytes, str] | None], key: bytes) -> list[str]:
    said: list[str] = []
    while (step := reached[key]) is not None:
        key = step[0]
        said.append(step[1])
    return said[::-1]
