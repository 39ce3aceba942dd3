"""What a watchdog does next, as a pure function of what it remembers, what it sees and the time.

A server shows life when its engines get on (serving/watch/pace.py) or when it computes a token that it is asked for,
the canary. It is asked only while nothing moves. Times are seconds of one clock that never goes back.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

# unreachable: the engine does not answer.      operation: another command is at the server, or was interrupted in it.
# absent: there is no container to watch.       down: it is not to be served.
# held: paused, made and not started, or about to be started by its engine.
# ending: it was stopped by hand, or its engine is going down.    stopped: by hand; left alone until it is started.
# starting: not ready yet.   ready: shows life.   silent: asked for a token, it gave none.
# waiting: for the time of the next start.      gave up: no more starts.
Phase = Literal[
    "new",
    "unreachable",
    "operation",
    "absent",
    "down",
    "held",
    "ending",
    "stopped",
    "starting",
    "ready",
    "silent",
    "waiting",
    "gave up",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
# crashed: it ended.  out of memory: killed by the kernel.  refused: by its entry point.  hung: no life for too long.
# deadline: not ready in time.  found down: it did not run when it was first seen.  no start: the engine cannot.
Reason = Literal["crashed", "out of memory", "refused", "hung", "deadline", "found down", "no start"]
REASONS: tuple[Reason, ...] = get_args(Reason)
# wait: look again.  canary: ask for a token.  end: save the log, and stop it if it runs.  stop: it still runs.
# start: start it.  give up: save the log, and end the watch.
Act = Literal["wait", "canary", "end", "stop", "start", "give up"]

# Of the image's entry point (serving/runtime/main.py): usage, attestation, self-test. A start would end the same way.
REFUSED = frozenset({2, 3, 4, 5})


@dataclass(frozen=True)
class Limits:
    """When a watchdog does what; seconds.

    Attributes:
        stall: without a sign of life for so long, and with two canaries that failed, a server hangs. vLLM 0.33.0 takes
            a step for dead after 300 s (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, v1/executor/multiproc_executor.py:414),
            and then ends with a reason in its log, which is better than to be ended.
        canary: nothing moved for so long: a token is asked for, which has as long to come; and then again.
        deadline: a server must be ready so long after its start, or its engines move.
        first_delay: before the first start after a failure; doubled with each one in the window.
        last_delay: what it is doubled up to.
        window: how long a start is remembered.
        starts: in the window; the next failure is the last.
        settle: an end by hand is believed after so long, in which the engine must go on answering: one that is
            going down itself ends its containers in the same way.
    """

    stall: float = 360
    canary: float = 60
    deadline: float = 4200
    first_delay: float = 10
    last_delay: float = 600
    window: float = 6 * 3600
    starts: int = 5
    settle: float = 20

    def delay(self, starts: int) -> float:
        """How long to wait before the next start, after `starts` in the window."""
        return float(min(self.first_delay * 2**starts, self.last_delay))


@dataclass(frozen=True)
class Seen:
    """What one look found.

    Attributes:
        engine: whether the engine answered; without it, nothing else is known.
        operation: whether another command is at the server.
        wanted: whether it is to be served.
        container: whether there is one, and whether it runs; held: see Phase.
        run: which run of which container.
        age: how long that run has lasted.
        exit_code: with which it ended.
        oom_killed: whether the kernel killed it for want of memory.
        by_hand: whether someone had the engine end it.
        supervised: whether it goes with its end, so that another must start the server again, as a systemd unit does.
        moved: whether its engines got on since the last look.
    """

    engine: bool = True
    operation: bool = False
    wanted: bool = True
    container: Literal["absent", "held", "running", "ended"] = "running"
    run: str = ""
    age: float = 0
    exit_code: int | None = None
    oom_killed: bool = False
    by_hand: bool = False
    supervised: bool = False
    moved: bool = False


@dataclass(frozen=True)
class Memory:
    """What is remembered from look to look.

    Attributes:
        phase: where the server is.
        run: the run that was seen last.
        was_up: whether that run was seen running.
        ready: whether it ever gave a token.
        alive_at: when it last showed life.
        asked_at: when it was last asked for a token.
        failed: canaries that failed since `alive_at`.
        over: a run whose end is dealt with.
        stopped: a run that was ended by hand.
        again_at: when the server is to be started again.
        hand_at: when it was first seen to have ended by hand.
        reason: of the last failure.
        starts: when it was started by the watchdog after a failure, in the window.
    """

    phase: Phase = "new"
    run: str | None = None
    was_up: bool = False
    ready: bool = False
    alive_at: float = 0
    asked_at: float | None = None
    failed: int = 0
    over: str | None = None
    stopped: str | None = None
    again_at: float | None = None
    hand_at: float | None = None
    reason: Reason | None = None
    starts: tuple[float, ...] = ()


Step = tuple[Memory, Act]


def look(memory: Memory, seen: Seen, now: float, limits: Limits) -> Step:
    """What follows from a look."""
    memory = replace(memory, starts=tuple(at for at in memory.starts if now - at < limits.window))
    if not seen.engine:
        # What happens meanwhile is the engine's doing, not a hand's.
        return replace(memory, phase="unreachable", was_up=False, hand_at=None, alive_at=now, failed=0), "wait"
    if seen.operation:
        # Whoever is at it sees to it that the server becomes ready, or is not served.
        return Memory(phase="operation"), "wait"
    if not seen.wanted or seen.container == "absent":
        return replace(_forgotten(memory), phase="absent" if seen.wanted else "down"), "wait"
    if seen.container == "held":
        return replace(_forgotten(memory), phase="held"), "wait"
    if seen.container == "ended":
        return _ended(memory, seen, now, limits)
    return _running(memory, seen, now, limits)


def answered(memory: Memory, token: bool, now: float) -> Memory:
    """After a canary: `token` says whether it was answered with one."""
    if token:
        return replace(memory, phase="ready", ready=True, alive_at=now, failed=0)
    return replace(memory, phase="silent" if memory.ready else memory.phase, failed=memory.failed + 1)


def _running(memory: Memory, seen: Seen, now: float, limits: Limits) -> Step:
    if memory.run != seen.run:
        memory = replace(_forgotten(memory), phase="starting", run=seen.run, alive_at=now)
    elif memory.over == seen.run:
        # It was to be ended, and the engine did not do it.
        return replace(memory, phase="waiting"), "stop"
    memory = replace(memory, was_up=True, stopped=None, hand_at=None)
    if seen.moved:
        memory = replace(memory, alive_at=now, failed=0)
    if not memory.ready:
        # Of a server that was up for long when it was first seen, a full queue may keep the canary waiting.
        if seen.age >= limits.deadline and memory.failed >= 2:
            return _failed(memory, seen, "deadline", now, limits)
        return replace(memory, phase="starting", asked_at=now), "canary"
    quiet = now - memory.alive_at
    if quiet >= limits.stall and memory.failed >= 2:
        return _failed(memory, seen, "hung", now, limits)
    memory = replace(memory, phase="silent" if memory.failed else "ready")
    if quiet >= limits.canary and (memory.asked_at is None or now - memory.asked_at >= limits.canary):
        return replace(memory, asked_at=now), "canary"
    return memory, "wait"


def _ended(memory: Memory, seen: Seen, now: float, limits: Limits) -> Step:
    if memory.stopped == seen.run:
        return replace(memory, phase="stopped"), "wait"
    if seen.supervised:
        return replace(_forgotten(memory), phase="absent"), "wait"
    if memory.over == seen.run:
        if memory.again_at is None:
            return _failed(memory, seen, "no start", now, limits)
        if now < memory.again_at:
            return replace(memory, phase="waiting"), "wait"
        # One that went down with its engine has not failed.
        starts = memory.starts if memory.reason == "found down" else (*memory.starts, now)
        return replace(memory, phase="starting", again_at=None, starts=starts), "start"
    was_up = memory.was_up and memory.run == seen.run
    if was_up and seen.by_hand:
        since = now if memory.hand_at is None else memory.hand_at
        if now - since < limits.settle:
            return replace(memory, phase="ending", hand_at=since), "wait"
        return replace(_forgotten(memory), phase="stopped", stopped=seen.run), "wait"
    if seen.exit_code in REFUSED:
        return _failed(memory, seen, "refused", now, limits)
    # One that was just started may end before it is looked at.
    known = was_up or memory.over is not None
    reason: Reason = "out of memory" if seen.oom_killed else "crashed" if known else "found down"
    return _failed(memory, seen, reason, now, limits)


def _failed(memory: Memory, seen: Seen, reason: Reason, now: float, limits: Limits) -> Step:
    memory = replace(_forgotten(memory), run=seen.run, over=seen.run, reason=reason)
    if reason == "found down":
        return replace(memory, phase="waiting", again_at=now + limits.first_delay), "end"
    if reason == "refused" or len(memory.starts) >= limits.starts:
        return replace(memory, phase="gave up"), "give up"
    again_at = now + limits.delay(len(memory.starts))
    # Of a start that is another's, no more is known than that it follows.
    starts = (*memory.starts, now) if seen.supervised else memory.starts
    return replace(memory, phase="waiting", again_at=again_at, starts=starts), "end"


def _forgotten(memory: Memory) -> Memory:
    """Without what is known of the run that was seen last."""
    return Memory(phase=memory.phase, reason=memory.reason, stopped=memory.stopped, starts=memory.starts)
