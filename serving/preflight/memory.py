"""Shared memory and the host's own."""

import re

from serving.preflight.host import Host
from serving.preflight.result import Result, finding, gib, ok, skipped
from serving.preflight.subject import Subject


def check(subject: Subject, host: Host) -> list[Result]:
    """Whether /dev/shm is large enough for the server and the KV blocks, and has that free, and there is memory."""
    return [_shared(subject, host), _available(subject, host)]


def _shared(subject: Subject, host: Host) -> Result:
    where, needed = host.shared_memory, subject.launch.shared_memory_gib * 2**30
    try:
        found = host.space(where)
    except OSError as error:
        return finding(
            "shared memory",
            f"{where}: {error.strerror}",
            "the server's processes exchange tensors through it",
            f"mount -t tmpfs -o size={needed / 2**30:.0f}G tmpfs {where}",
        )
    held = f"{where} has {gib(found.total)}, {gib(found.free)} of it free"
    if found.total < needed:
        what = f"{held}; {gib(needed)} are needed"
        why = "a process that writes past its end is killed with SIGBUS"
        size = -(-needed // 2**30)
        return finding("shared memory", what, why, f"mount -o remount,size={size:.0f}G {where}")
    if found.free < needed:
        what = f"{held}; {gib(needed)} are needed"
        why = "what is in it is taken from the server: another's, or left by one that crashed"
        return finding("shared memory", what, why, f"fuser -v {where}/*, and remove what nobody has open")
    return ok("shared memory", held)


def _available(subject: Subject, host: Host) -> Result:
    knob, needed = subject.knob("offload"), subject.offload_gib * 2**30
    if not needed:
        return skipped("host memory", f"{knob} is 0: nothing is offloaded to it")
    try:
        text = (host.proc / "meminfo").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        return skipped("host memory", f"{host.proc / 'meminfo'}: {error.strerror}")
    found = re.search(r"^MemAvailable: +([0-9]+) kB$", text, re.MULTILINE)
    if not found:
        return skipped("host memory", f"{host.proc / 'meminfo'} has no MemAvailable")
    available = int(found[1]) * 1024
    if available < needed:
        what = f"{gib(available)} are available; {knob} takes {gib(needed)}"
        why = "the host would run out of memory while it serves, and the kernel kills processes for it"
        most = max(0, int(available / 2**30) - 8)
        return finding("host memory", what, why, f"--set {knob}={most}, or end what else takes memory")
    return ok("host memory", f"{gib(available)} are available, {gib(needed)} are for KV blocks")
