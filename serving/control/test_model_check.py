"""Every change is struck down at every step, and at every step of what settles it; the invariants hold throughout.

A blow is a kill -9, a Ctrl-C, an engine that refuses once or goes away, or a full disk. Steps are all questions to the
engine, the moments before and after each of its changes, and the moments before and after each write of the state.
"""

from collections.abc import Callable

import pytest

from serving.control.back import NOTHING_SERVES, ChangeError
from serving.control.ground import Ground
from serving.control.made_up import (
    NAME,
    Blow,
    FakeEngine,
    FakeJournal,
    FakeStarting,
    KilledError,
    Quiet,
    World,
    generation,
    never,
)
from serving.control.sequence import Sequence
from tools.cli.errors import UserError

BLOWS: tuple[Blow, ...] = ("killed", "interrupted", "engine", "away", "full")


def sequence(world: World) -> Sequence:
    return Sequence(
        Ground(FakeEngine(world), FakeStarting(world), FakeJournal(world), never, Quiet()), lambda _: None
    )


def served(empty: bool = False, down: bool = False, crashed: bool = False) -> World:
    """A world in which generation 1 serves, or was stopped, or crashed."""
    world = World()
    sequence(world).replace(generation(1))
    if down:
        sequence(world).down()
    if crashed:
        (one,) = world.live
        one.stop(1)
        world.ready[1] = True
    world.empty = empty
    return world


def replace(world: World) -> None:
    number = world.stored.next_number
    sequence(world).replace(generation(number, tuning=True))


def again(world: World) -> None:
    sequence(world).start_again()


def down(world: World) -> None:
    sequence(world).down()


def settle(world: World) -> None:
    sequence(world).settle()


CHANGES: dict[str, tuple[Callable[[], World], Callable[[World], None]]] = {
    "first": (World, replace),
    "replace": (served, replace),
    "replace with empty caches": (lambda: served(empty=True), replace),
    "replace what crashed": (lambda: served(crashed=True), replace),
    "replace after down": (lambda: served(down=True), replace),
    "again after a crash": (lambda: served(crashed=True), again),
    "again after down": (lambda: served(down=True), again),
    "again what hangs": (served, again),
    "down": (served, down),
}


def attempt(world: World, change: Callable[[World], None]) -> BaseException | None:
    """Runs one process of moet to its end."""
    try:
        change(world)
    except (KilledError, KeyboardInterrupt, UserError, OSError) as error:
        return error
    return None


def must_serve(name: str) -> bool:
    """Whether something has to serve at the end whatever happens, because something did before."""
    return name in ("replace", "replace with empty caches")


def check_end(world: World) -> None:
    """After a settle that nothing disturbed: one server, the state's, or clearly none."""
    world.check()
    stored = world.stored
    assert stored.operation is None
    assert [one.now.name for one in world.containers.values()] in ([], [NAME])
    for one in world.live:
        assert one.generation == stored.running and not stored.stopped
    if not world.live:
        assert stored.stopped or stored.failure or stored.running is None or world.containers
    if stored.running is not None:
        assert stored.generation(stored.running).outcome == "served"
    assert all(one.outcome != "staged" for one in stored.generations)


@pytest.mark.parametrize("new_is_ready", [True, False])
@pytest.mark.parametrize("blow", BLOWS)
@pytest.mark.parametrize("name", list(CHANGES))
def test_one_blow_at_every_step_then_a_quiet_settle(name: str, blow: Blow, new_is_ready: bool) -> None:
    make, change = CHANGES[name]
    for step in range(1, 2000):
        world = make()
        before = world.stored
        world.ready[world.stored.next_number] = new_is_ready
        world.again((step, blow))
        error = attempt(world, change)
        world.check()
        struck = world.steps >= step
        world.again()
        settle(world)
        check_end(world)
        if must_serve(name):
            (one,) = world.live
            assert one.generation == (world.stored.running or 0)
            if not new_is_ready:
                assert one.generation == before.running
        if not struck:
            assert (error is None) == (new_is_ready or change is down or change is again)
            return
    pytest.fail("the change does not end")


TWICE: list[tuple[str, Blow]] = [
    *((name, "killed") for name in CHANGES),
    *(("replace", blow) for blow in BLOWS if blow != "killed"),
]


@pytest.mark.parametrize("new_is_ready", [True, False])
@pytest.mark.parametrize(("name", "blow"), TWICE)
def test_blow_at_every_step_and_a_kill_at_every_step_of_the_settling(
    name: str, blow: Blow, new_is_ready: bool
) -> None:
    make, change = CHANGES[name]
    for step in range(1, 2000):
        broken = make()
        broken.ready[broken.stored.next_number] = new_is_ready
        broken.again((step, blow))
        attempt(broken, change)
        if broken.steps < step:
            return
        for second in range(1, 2000):
            world = broken.copy()
            world.again((second, "killed"))
            killed = isinstance(attempt(world, settle), KilledError)
            world.check()
            world.again()
            settle(world)
            check_end(world)
            if must_serve(name):
                assert len(world.live) == 1
            if not killed:
                break
    pytest.fail("the change does not end")


@pytest.mark.parametrize("new_is_ready", [True, False])
@pytest.mark.parametrize("name", list(CHANGES))
def test_every_state_is_read_as_it_was_written(name: str, new_is_ready: bool) -> None:
    make, change = CHANGES[name]
    for blow in BLOWS[::2]:
        for step in range(1, 200, 7):
            world = make()
            world.ready[world.stored.next_number] = new_is_ready
            world.again((step, blow))
            world.decodes = True
            attempt(world, change)
            world.again()
            settle(world)


def test_second_interrupt_leaves_at_once_and_the_next_command_goes_on() -> None:
    for step in range(1, 2000):
        world = served()
        world.ready[2] = False
        world.again((step, "interrupted"))
        error = attempt(world, replace)
        if isinstance(error, KeyboardInterrupt) and world.stored.operation:
            world.again()
            settle(world)
            check_end(world)
            assert [one.generation for one in world.live] == [1]
            return
    pytest.fail("no interrupt fell into the way back")


def test_both_fail_is_said_and_has_a_status_of_its_own() -> None:
    world = served()
    world.again()
    world.ready.update({1: False, 2: False})
    with pytest.raises(ChangeError, match=r"2: crashed .*; generation 1 did not come back: crashed") as caught:
        replace(world)
    assert caught.value.status == NOTHING_SERVES
    assert world.stored.failure and world.stored.operation is None
    assert world.stored.generation(2).outcome == "failed"
    assert {number for number, _ in world.logs} == {1, 2}


def test_way_back_that_the_engine_refuses_for_good_is_no_dead_end() -> None:
    world = served()
    world.ready[2], world.refused = False, 1
    with pytest.raises(ChangeError, match="generation 1 did not come back: its port is taken") as caught:
        replace(world)
    assert caught.value.status == NOTHING_SERVES and world.stored.operation is None
    replace(world)
    assert [one.generation for one in world.live] == [3]
    check_end(world)


def test_fault_of_the_program_is_gone_back_from_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = served()
    plain = FakeStarting.wait

    def wait(self: FakeStarting, container: object, one: object, first: bool) -> None:
        if getattr(one, "number", 0) == 2:
            raise KeyError("a mistake")
        plain(self, container, one, first)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeStarting, "wait", wait)
    with pytest.raises(KeyError):
        replace(world)
    assert [one.generation for one in world.live] == [1]
    check_end(world)


def test_container_that_moet_did_not_make_is_left_alone() -> None:
    world = World()
    FakeEngine(world).create(generation(1).launch, NAME, {}, None)
    with pytest.raises(UserError, match=f"docker rm -f {NAME}"):
        replace(world)
    assert world.stored.generations == () and len(world.containers) == 1


def test_containers_that_the_state_does_not_know_are_left_alone() -> None:
    world = served()
    world.stored = World().stored
    with pytest.raises(UserError, match="put the state back"):
        replace(world)
    assert len(world.live) == 1 and world.stored.generations == ()


def test_container_that_someone_removed_is_made_anew_on_the_way_back() -> None:
    world = served()
    world.containers.clear()
    world.ready[2] = False
    with pytest.raises(ChangeError, match="generation 1 serves again"):
        replace(world)
    assert [one.generation for one in world.live] == [1]
    check_end(world)
