"""What a preflight says of copies and sums between GPUs."""

from collections.abc import Sequence

from serving.launch.launch import Launch
from serving.preflight.collective_result import Copies, Document, Group
from serving.preflight.result import Result, finding, hint, ok, some
from serving.preflight.subject import Subject

COPIES = "GPU copies"
SUMS = "all-reduce"

# What was published of 4x RTX PRO 6000 (PCIe) for the sum of a decode step.
_SLOW_US = 25.0
_USUAL = "11-13 us by P2P and 18-30 us by host memory were published of 4x RTX PRO 6000 on PCIe"

_SAME = "the server does the same when it starts, and then in every layer of every step"
_NUMBERS = "the server would compute with them"
_FABRIC = "IOMMU and ACS, above: iommu=pt or off, ACS off in the firmware"
_LOG = "nvidia-smi; dmesg | grep -e NVRM -e Xid"
_LEVEL = "NCCL_P2P_LEVEL"


def results(subject: Subject, found: Document) -> list[Result]:
    """A result of all copies, and one of the sums of each group."""
    open_ = bool(found.copies and found.copies.state == "done" and not found.copies.closed)
    said = [_copies(subject.launch, found.copies)] if found.copies else []
    return [*said, *(_sums(subject, group, open_) for group in found.groups)]


def without(subject: Subject, found: Document) -> Result:
    """What a second run without reads between GPUs says of a first one that was bad."""
    name = f"{SUMS} without P2P"
    if any(group.bad or group.state == "failed" for group in found.groups):
        why = "it is not reads between GPUs alone that fail"
        return finding(name, "no better with NCCL_P2P_DISABLE=1", why, f"{_LOG}: a card or its slot may be broken")
    times = some([f"{group.row_us:.1f} us for 10 KiB" for group in found.groups])
    has_knob = _LEVEL in subject.settings.by_name
    now = f"--set {_LEVEL}=LOC" if has_knob else "NCCL_P2P_DISABLE=1 in the container's environment"
    why = "reads between GPUs are what fails; through host memory the server works, and each sum takes longer"
    return hint(name, f"right with NCCL_P2P_DISABLE=1, {times}", why, f"{_FABRIC}; until then {now}")


def _copies(launch: Launch, copies: Copies) -> Result:
    pairs = len(launch.gpus) * (len(launch.gpus) - 1)
    if copies.state == "failed":
        return finding(COPIES, f"{some(list(copies.errors))} at {some(list(copies.where))}", _SAME, _LOG)
    if copies.state == "hung":
        return finding(COPIES, f"hung at {some(list(copies.where))}", _SAME, _FABRIC)
    if copies.wrong:
        what = f"{len(copies.wrong)} of {pairs} arrive with other bytes: {_named(copies.wrong, launch)}"
        return finding(COPIES, what, _NUMBERS, _FABRIC)
    if copies.closed:
        what = f"{pairs} of {pairs} arrive; {len(copies.closed)} by host memory: {_named(copies.closed, launch)}"
        why = "the driver lets these GPUs not read each other, and each sum takes longer"
        return hint(COPIES, what, why, "nvidia-smi topo -p2p r says why; for GeForce cards the driver has it closed")
    return ok(COPIES, f"{pairs} of {pairs} arrive; every GPU reads every other")


def _sums(subject: Subject, group: Group, open_: bool) -> Result:
    gpus = f"GPU {', '.join(subject.launch.gpus[number] for number in group.devices)}"
    nccl = f"; NCCL says: {some(list(group.warnings))}" if group.warnings else ""
    if group.state == "failed":
        return finding(SUMS, f"{gpus}: {some(list(group.errors), 1)} at {some(list(group.where))}{nccl}", _SAME, _LOG)
    if group.state == "hung":
        return finding(SUMS, f"{gpus}: hung at {some(list(group.where))}{nccl}", _SAME, _FABRIC)
    if group.wrong:
        sizes = some([f"{size:,} bytes" for size in group.wrong], 8)
        return finding(SUMS, f"{gpus}: wrong sums of {sizes}", _NUMBERS, _FABRIC)
    ways = some(list(group.ways)) or "ways that NCCL does not name"
    speed = f"{group.row_us:.1f} us for 10 KiB, {group.rate / 1e9:.1f} GB/s for 64 MiB"
    what = f"{gpus}: right; {speed}, by {ways} (NCCL {group.nccl})"
    if open_ and group.ways and not any(way.startswith("P2P") for way in group.ways):
        why = "the GPUs may read each other, NCCL goes another way, and each sum takes longer"
        return hint(SUMS, what, why, _allow(subject))
    if group.row_us > _SLOW_US:
        why = f"more than {_SLOW_US:g} us, in every layer of every step: {_USUAL}"
        return hint(SUMS, what, why, f"{_FABRIC}; nvidia-smi -q -d PERFORMANCE says whether clocks are held down")
    return ok(SUMS, what)


def _allow(subject: Subject) -> str:
    level = subject.settings.by_name.get(_LEVEL)
    if level is not None and level.text != "SYS":
        return f"--set {_LEVEL}=SYS"
    return "--set EXTRA_DOCKER_ARGS=... without NCCL_P2P_DISABLE; NCCL_DEBUG=INFO in it has the server's log say why"


def _named(pairs: Sequence[Sequence[int]], launch: Launch) -> str:
    return some([f"{launch.gpus[one]} to {launch.gpus[other]}" for one, other in pairs])
