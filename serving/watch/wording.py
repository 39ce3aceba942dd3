"""What a watchdog says of a server, a line each."""

from serving.watch.machine import Limits, Memory
from serving.watch.subject import Target

_REFUSED = {
    2: "wrong usage, or a switch set to what it does not take",
    3: "the image differs from its manifest",
    4: "there is nothing to attest the image against",
    5: "a kernel is wrong on this machine",
}


def failure(memory: Memory, exit_code: int | None) -> str:
    """What went wrong."""
    if memory.reason == "refused":
        return f"its entry point refused to start it (status {exit_code}: {_REFUSED.get(exit_code or 0, 'unknown')})"
    code = "" if exit_code is None else f" (status {exit_code})"
    said = {
        "crashed": f"it ended by itself{code}",
        "out of memory": f"the kernel killed it for want of memory{code}",
        "hung": "it hangs: no token, and nothing that moves",
        "deadline": "it did not become ready in time",
        "found down": f"it does not run{code}",
        "no start": f"the engine could not start it{code}",
    }
    return said[memory.reason or "crashed"]


def again(memory: Memory, now: float, limits: Limits) -> str:
    """When it is started next."""
    wait = max(0.0, (memory.again_at or now) - now)
    if memory.reason == "found down":
        return f"a start follows in {wait:.0f} s"
    count = f"start {len(memory.starts) + 1} of {limits.starts} in {limits.window / 3600:g} h"
    return f"{count} follows in {wait:.0f} s"


def gave_up(target: Target, memory: Memory, limits: Limits, failed: str, log: str | None) -> str:
    """The last failure, and what to do."""
    name = target.container
    tries = "" if memory.reason == "refused" else f", after {limits.starts} starts in {limits.window / 3600:g} h"
    said = f"{failed}{tries}" + (f"; its last log: {log}" if log else "")
    if target.generation is None:
        return f"{said}; start the watch again once {name} runs"
    return f"{said}; `moet serve rollback` goes back, or mend it and `moet serve up`; then watch it again"
