"""A start that failed: why, where it was, and what mends it."""

from collections.abc import Sequence
from typing import Literal

from serving.containers.state import ContainerState
from serving.runtime import main as entry
from serving.startup import problems
from serving.startup.phases import Phase, message
from serving.startup.wording import duration
from tools.cli.errors import UserError

Reason = Literal["crashed", "deadline", "gone", "hung", "interrupted", "out of memory", "refused"]

_TAIL = 50
_SIGKILL = 137
_REFUSALS = {
    entry.USAGE: "a switch has a value that it does not take",
    entry.MISMATCH: "the image differs from its manifest: recreate it from its digest (`moet image load`)",
    entry.CANNOT_ATTEST: "there is nothing to attest against: set IMAGE to an image of Moet's, and clear no variables",
    entry.SELFTEST: "a kernel is wrong on this machine: set its switch to 0, and report it",
}
_REPORT = "moet: "


class StartFailedError(UserError):
    """A server that did not become ready.

    Attributes:
        reason: in a word.
        phase: that it was in.
        seconds: how long it had been up, or was waited for.
        exit_code: of its process; None where that still runs, or never did.
        tail: its last lines.
        advice: what mends it, without a full stop; "" where nobody knows.
    """

    def __init__(
        self,
        reason: Reason,
        phase: Phase,
        seconds: float,
        what: str,
        exit_code: int | None = None,
        tail: Sequence[str] = (),
        advice: str = "",
    ) -> None:
        """`what` says it in words, on one line; a full stop at its end is left out."""
        self.reason, self.phase, self.seconds, self.advice = reason, phase, seconds, advice
        self.exit_code = exit_code
        self.tail = tuple(tail)[-_TAIL:]
        where = f"after {duration(seconds)}, in phase {phase.name} ({phase.what})"
        super().__init__(f"{reason} {where}: {what.rstrip('.')}" + (f"; {advice}" if advice else ""))


def ended(state: ContainerState, phase: Phase, seconds: float, lines: Sequence[str]) -> StartFailedError:
    """Why a container ended, or never ran, from what the engine says of it and its log."""
    status = state.exit_code
    if state.gone:
        return StartFailedError("gone", phase, seconds, "somebody removed the container", None, lines)
    if state.error:
        what = f"the engine could not start it: {state.error}"
        return StartFailedError("crashed", phase, seconds, what, status, lines)
    if state.status == "created":
        return StartFailedError("crashed", phase, seconds, "the container was never started", status, lines)
    if state.oom_killed:
        what = "the kernel killed it: host memory, or the container's limit, ran out"
        mend = "lower KV_OFFLOAD_GIB, or raise --memory of EXTRA_DOCKER_ARGS; `dmesg` says how much it had"
        return StartFailedError("out of memory", phase, seconds, what, status, lines, mend)
    if refused := _refusal(status, lines):
        return StartFailedError("refused", phase, seconds, refused[0], status, lines, refused[1])
    said = problems.cause(lines)
    if found := problems.problem(lines):
        quoted = said if found.text in said else next(message(line) for line in lines if found.text in line)
        reason: Reason = "out of memory" if found.memory else "crashed"
        return StartFailedError(reason, phase, seconds, quoted, status, lines, found.mend)
    if status == _SIGKILL:
        what, mend = "it was killed (SIGKILL)", "`dmesg` says whether the kernel did it, for want of host memory"
        return StartFailedError("crashed", phase, seconds, what, status, lines, mend)
    last = message(lines[-1]) if lines else "it wrote nothing"
    return StartFailedError("crashed", phase, seconds, f"exit status {status}: {said or last}", status, lines)


def _refusal(status: int | None, lines: Sequence[str]) -> tuple[str, str] | None:
    """What the entry point said where it did not start vLLM, and what mends it; None where it did, or nothing."""
    # vLLM ends with 2 as well, where it does not take an argument, and then has the last word.
    if status not in _REFUSALS or not lines or not message(lines[-1]).startswith(_REPORT):
        return None
    own = [said.removeprefix(_REPORT) for said in map(message, lines) if said.startswith(_REPORT)]
    telling = {entry.USAGE: ": expected ", entry.MISMATCH: "MISMATCH "}.get(status, "")
    return next((said for said in own if telling and telling in said), own[-1]), _REFUSALS[status]
