"""Every state that the watchdog can come to, with small limits, and the cases that people would ask about."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from serving.watch import machine
from serving.watch.machine import Act, Limits, Memory, Seen

SMALL = Limits(stall=6, canary=2, deadline=3, first_delay=2, last_delay=3, window=7, starts=1, settle=2)
# Ages beyond every limit are all the same.
OLD = 7
AWAY = (Seen(engine=False), Seen(operation=True), Seen(wanted=False), Seen(container="absent"), Seen(container="held"))


@dataclass(frozen=True)
class World:
    """The watchdog's memory at time 0, and what a bystander counts: times are ages, None for never.

    Attributes:
        memory: of the watchdog.
        quiet: since the run that is up showed life, or was first seen.
        misses: canaries of it that failed since then.
        starts: of the watchdog's starts.
        failed_at: since the last failure that a start is to follow.
        dead: runs that have ended, and do not run again.
    """

    memory: Memory
    quiet: int = 0
    misses: int = 0
    starts: tuple[int, ...] = ()
    failed_at: int | None = None
    dead: frozenset[str] = frozenset()


def aged(at: float | None, now: float) -> float | None:
    return None if at is None else max(at - now, -OLD)


def normal(world: World, now: float) -> World:
    """The same world with `now` as time 0, and the names of runs in order."""
    memory = world.memory
    names: dict[str, str] = {}
    for run in (memory.run, memory.over, memory.stopped):
        if run is not None:
            names.setdefault(run, str(len(names)))
    memory = replace(
        memory,
        run=names.get(memory.run or ""),
        over=names.get(memory.over or ""),
        stopped=names.get(memory.stopped or ""),
        alive_at=aged(memory.alive_at, now) or 0,
        asked_at=aged(memory.asked_at, now),
        again_at=aged(memory.again_at, now),
        hand_at=aged(memory.hand_at, now),
        failed=min(memory.failed, 2),
        starts=tuple(aged(at, now) or 0 for at in memory.starts),
    )
    dead = frozenset(names[run] for run in world.dead if run in names)
    return replace(world, memory=memory, quiet=min(world.quiet, OLD), misses=min(world.misses, 2), dead=dead)


def looks(world: World, supervised: bool) -> Iterator[Seen]:
    """Everything that may be seen next of a server that another starts again (supervised), or none does."""
    yield from AWAY
    memory = world.memory
    for run in {memory.run, memory.over, memory.stopped, "new"} - {None}:
        if run not in world.dead:
            for age in (0, SMALL.deadline):
                for moved in (False, True):
                    yield Seen(run=str(run), age=age, moved=moved, supervised=supervised)
        ended = Seen(container="ended", run=str(run), exit_code=1, supervised=supervised)
        yield from (ended, replace(ended, by_hand=True), replace(ended, exit_code=3))


def observed(world: World, seen: Seen) -> World:
    """What a bystander makes of a look."""
    if seen.operation:
        return replace(world, starts=(), failed_at=None)
    if not seen.engine:
        return replace(world, quiet=0, misses=0)
    if seen.container == "ended":
        world = replace(world, dead=world.dead | {seen.run})
    if seen.container != "running" or not seen.wanted:
        return replace(world, quiet=0, misses=0)
    if seen.run != world.memory.run:
        return replace(world, quiet=0, misses=0, failed_at=None)
    return replace(world, quiet=0, misses=0) if seen.moved else world


def check(world: World, seen: Seen, memory: Memory, act: Act) -> None:
    """What must hold of every act."""
    if act in ("end", "stop", "start", "give up"):
        assert seen.engine and seen.wanted and not seen.operation
        assert seen.container in ("running", "ended")
    if act == "start":
        assert seen.container == "ended" and not seen.supervised
        assert seen.run != world.memory.stopped, "a server that was stopped by hand was started"
        assert world.failed_at is not None and world.failed_at >= SMALL.first_delay
        assert len(world.starts) < SMALL.starts or world.memory.reason == "found down"
    if act in ("end", "give up") and seen.container == "running":
        hung = world.quiet >= SMALL.stall and world.misses >= 2
        late = seen.age >= SMALL.deadline and world.misses >= 2
        assert hung if world.memory.ready else late, "a server that shows life was ended"
    if act == "give up":
        assert memory.phase == "gave up"
        assert seen.exit_code in machine.REFUSED or len(world.starts) == SMALL.starts
    assert (memory.phase == "gave up") == (act == "give up")


def followers(world: World, supervised: bool) -> Iterator[World]:
    """The worlds that may come next, a second later."""
    for seen in looks(world, supervised):
        now = 1
        aging = replace(
            world,
            quiet=world.quiet + 1,
            starts=tuple(age + 1 for age in world.starts if age + 1 < SMALL.window),
            failed_at=None if world.failed_at is None else min(world.failed_at + 1, OLD),
        )
        before = observed(aging, seen)
        memory, act = machine.look(world.memory, seen, now, SMALL)
        check(before, seen, memory, act)
        after = replace(before, memory=memory)
        if act == "end":
            counted = (*before.starts, 0) if seen.supervised else before.starts
            after = replace(after, failed_at=0, starts=counted, quiet=0, misses=0)
        if act == "start":
            counted = before.starts if memory.reason == "found down" else (*before.starts, 0)
            after = replace(after, starts=counted, failed_at=None)
        if act == "canary":
            given = machine.answered(memory, True, now)
            yield normal(replace(after, memory=given, quiet=0, misses=0), now)
            failed = machine.answered(memory, False, now)
            yield normal(replace(after, memory=failed, misses=before.misses + 1), now)
        if act != "give up":
            yield normal(after, now)


def every_world(supervised: bool) -> set[World]:
    first = World(Memory())
    found = {first}
    todo = deque(found)
    while todo:
        for world in followers(todo.popleft(), supervised):
            if world not in found:
                found.add(world)
                todo.append(world)
    return found


@pytest.mark.parametrize("supervised", [False, True])
def test_every_reachable_state(supervised: bool) -> None:
    worlds = every_world(supervised)
    others = {"ending", "stopped"} if supervised else set()
    assert {world.memory.phase for world in worlds} == set(machine.PHASES) - {"gave up"} - others
    for world in worlds:
        assert ends(world.memory, Seen(run="x", age=SMALL.deadline, supervised=supervised), "end")
        assert ends(world.memory, Seen(container="ended", run="x", exit_code=1), "start")


def ends(memory: Memory, seen: Seen, act: Act) -> bool:
    """Whether a server that stays dead, or stays silent, is acted on in the end."""
    for now in range(1, 40):
        memory, done = machine.look(memory, seen, now, SMALL)
        if done in (act, "give up"):
            return True
        if done == "canary":
            memory = machine.answered(memory, False, now)
    return False


class Watched:
    """A server that is watched with the real limits, a look every ten seconds."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008
        self.limits = limits
        self.memory = Memory()
        self.now = 0.0

    def look(self, seen: Seen, token: bool = False, seconds: float = 10) -> Act:
        self.now += seconds
        self.memory, act = machine.look(self.memory, seen, self.now, self.limits)
        if act == "canary":
            self.memory = machine.answered(self.memory, token, self.now)
        return act

    def looks(self, seen: Seen, seconds: float, token: bool = False) -> list[Act]:
        """What is done in so many seconds, without waiting."""
        done = [self.look(seen, token) for _ in range(int(seconds / 10))]
        return [act for act in done if act != "wait"]

    def until_done(self, seen: Seen) -> tuple[Act, float]:
        """What is done at last, and after how many seconds, in which it is only looked and asked."""
        begin = self.now
        while self.now - begin < 24 * 3600:
            if (act := self.look(seen)) not in ("wait", "canary"):
                return act, self.now - begin
        raise AssertionError("nothing was done in a day")

    @property
    def phase(self) -> str:
        return self.memory.phase

    @property
    def reason(self) -> str | None:
        return self.memory.reason


UP = Seen(run="1")
MOVING = replace(UP, moved=True)
CRASHED = Seen(container="ended", run="1", exit_code=1)


@pytest.fixture
def watched() -> Watched:
    """A server that is ready."""
    found = Watched()
    assert found.look(UP, token=True) == "canary"
    assert found.phase == "ready"
    return found


def test_a_slow_start_is_waited_for() -> None:
    watched = Watched()
    for minute in range(60):
        assert set(watched.looks(replace(UP, age=minute * 60), 60)) == {"canary"}
    assert watched.phase == "starting"
    watched.look(replace(UP, age=3700), token=True)
    assert watched.phase == "ready"


def test_a_start_that_does_not_end_is_ended() -> None:
    watched = Watched()
    acts = [watched.look(replace(UP, age=age)) for age in range(0, 4300, 10)]
    assert acts.index("end") == 420
    assert watched.reason == "deadline"


def test_a_busy_server_is_not_asked(watched: Watched) -> None:
    assert watched.looks(MOVING, 5000) == []
    assert watched.phase == "ready"


def test_an_idle_server_is_asked_once_a_minute(watched: Watched) -> None:
    assert watched.looks(UP, 3600, token=True) == ["canary"] * 60
    assert watched.phase == "ready"


def test_a_long_prompt_that_keeps_the_canary_waiting_is_no_hang(watched: Watched) -> None:
    """It moves the figures, if only every five minutes."""
    for _ in range(10):
        assert set(watched.looks(UP, 300)) == {"canary"}
        assert watched.phase == "silent"
        watched.look(MOVING)
        assert watched.phase == "ready"


def test_a_hang_is_ended_and_started_again(watched: Watched) -> None:
    assert watched.until_done(UP) == ("end", 360)
    assert (watched.phase, watched.reason) == ("waiting", "hung")
    assert watched.until_done(replace(CRASHED, by_hand=True)) == ("start", 10)


def test_one_that_the_engine_does_not_stop_is_stopped_again(watched: Watched) -> None:
    assert watched.until_done(UP)[0] == "end"
    assert watched.looks(UP, 30) == ["stop"] * 3


def test_delays_double_and_starts_come_to_an_end(watched: Watched) -> None:
    begun = []
    for run in range(1, 7):
        watched.look(replace(UP, run=str(run), age=1), token=True)
        assert watched.look(replace(CRASHED, run=str(run))) == ("end" if run < 6 else "give up")
        failed = watched.now
        while run < 6 and watched.look(replace(CRASHED, run=str(run)), seconds=5) != "start":
            assert watched.phase == "waiting"
        begun.append(watched.now - failed)
    assert begun[:5] == [10, 20, 40, 80, 160]
    assert (watched.phase, watched.reason) == ("gave up", "crashed")


def test_delays_have_an_end() -> None:
    assert [Limits().delay(count) for count in range(5, 9)] == [320, 600, 600, 600]


def test_failures_of_yesterday_do_not_count(watched: Watched) -> None:
    for run in range(1, 30):
        watched.look(replace(UP, run=str(run)), token=True, seconds=2 * 3600)
        assert watched.look(replace(CRASHED, run=str(run))) == "end"
        assert watched.until_done(replace(CRASHED, run=str(run)))[0] == "start"


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_what_the_entry_point_refuses_is_not_started_again(code: int) -> None:
    watched = Watched()
    watched.look(UP)
    assert watched.look(replace(CRASHED, exit_code=code)) == "give up"
    assert watched.reason == "refused"


def test_one_that_cannot_be_started_is_tried_as_often_as_one_that_crashes(watched: Watched) -> None:
    acts = [watched.look(CRASHED)]
    while acts[-1] != "give up":
        acts.append(watched.look(CRASHED))
    assert acts.count("start") == 5
    assert watched.reason == "no start"


def test_out_of_memory_is_told_apart(watched: Watched) -> None:
    assert watched.look(replace(CRASHED, exit_code=137, oom_killed=True)) == "end"
    assert watched.reason == "out of memory"


def test_docker_stop_is_not_fought(watched: Watched) -> None:
    by_hand = replace(CRASHED, exit_code=0, by_hand=True)
    assert watched.looks(by_hand, 24 * 3600) == []
    assert watched.phase == "stopped"
    assert watched.looks(Seen(engine=False), 60) == []
    assert watched.looks(replace(by_hand, by_hand=False), 3600) == []
    assert watched.phase == "stopped"
    assert watched.look(replace(UP, run="2"), token=True) == "canary"
    assert watched.look(replace(CRASHED, run="2")) == "end"


def test_an_engine_that_takes_its_containers_down_with_it_is_no_hand(watched: Watched) -> None:
    assert watched.look(replace(CRASHED, exit_code=0, by_hand=True)) == "wait"
    assert watched.phase == "ending"
    assert watched.looks(Seen(engine=False), 300) == []
    assert watched.phase == "unreachable"
    assert watched.look(replace(CRASHED, exit_code=0)) == "end"
    assert watched.reason == "found down"
    assert watched.until_done(replace(CRASHED, exit_code=0)) == ("start", 10)


def test_a_container_that_outlives_its_engine_is_watched_on(watched: Watched) -> None:
    watched.looks(Seen(engine=False), 3600)
    assert watched.look(replace(UP, age=9999)) == "wait"
    assert watched.phase == "ready"
    assert watched.until_done(replace(UP, age=9999)) == ("end", 350)


@pytest.mark.parametrize("away", AWAY[1:])
def test_what_others_do_is_left_to_them(watched: Watched, away: Seen) -> None:
    assert watched.looks(away, 24 * 3600) == []
    assert watched.look(replace(UP, run="2"), token=True) == "canary"


def test_an_operation_clears_the_count(watched: Watched) -> None:
    watched.look(CRASHED)
    watched.looks(CRASHED, 20)
    assert watched.memory.starts
    watched.look(Seen(operation=True))
    assert not watched.memory.starts


def test_one_that_another_starts_again_is_only_ended() -> None:
    watched = Watched()
    for run in range(1, 7):
        up = replace(UP, run=str(run), supervised=True)
        watched.look(up, token=True)
        assert watched.until_done(up)[0] == ("end" if run < 6 else "give up")
        gone = replace(CRASHED, run=str(run), supervised=True)
        assert watched.looks(gone, 60) == watched.looks(Seen(container="absent"), 60) == []


def test_a_crash_that_happened_before_is_found() -> None:
    watched = Watched()
    assert watched.look(replace(CRASHED, by_hand=True)) == "end"
    assert watched.reason == "found down"
    assert watched.until_done(CRASHED) == ("start", 10)
    assert watched.look(replace(CRASHED, run="2")) == "end"
    assert watched.reason == "crashed"


def test_engines_that_go_down_often_do_not_count(watched: Watched) -> None:
    for run in range(1, 20):
        watched.looks(Seen(engine=False), 100)
        assert watched.look(replace(CRASHED, run=str(run))) == "end"
        assert watched.until_done(replace(CRASHED, run=str(run))) == ("start", 10)
        watched.look(replace(UP, run=str(run + 1)), token=True)
    assert watched.memory.starts == ()
