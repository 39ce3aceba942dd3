"""Driver and cards against what the image needs."""

from serving.preflight import nvidia_smi
from serving.preflight.host import Host
from serving.preflight.nvidia_smi import DriverError, Gpu, NoDriverError
from serving.preflight.result import Result, finding, gib, ok, skipped, some
from serving.preflight.subject import Subject

_NAMES = ("driver", "GPUs", "GPU memory")


def check(subject: Subject, host: Host) -> list[Result]:
    """Driver version, the GPUs that are asked for with their compute capability, and their free memory."""
    try:
        found = nvidia_smi.gpus(host)
    except NoDriverError as error:
        return [skipped(name, str(error)) for name in _NAMES]
    except DriverError as error:
        why = "the driver is not loaded, or is of another version than its programs"
        broken = finding("driver", f"nvidia-smi fails: {error}", why, "reboot; then nvidia-smi, and dmesg | grep NVRM")
        return [broken, *(skipped(name, "nvidia-smi fails") for name in _NAMES[1:])]
    if not found:
        why = "the driver is there, and sees no card"
        none = finding("GPUs", "nvidia-smi lists none", why, "lspci -d 10de: lists the cards; dmesg | grep NVRM")
        return [skipped("driver", "without a GPU, nvidia-smi does not name it"), none, skipped("GPU memory", "no GPU")]
    chosen, results = _chosen(subject, found)
    return [_driver(subject, found[0]), *results, *([_memory(subject, host, chosen)] if chosen else [])]


def _driver(subject: Subject, gpu: Gpu) -> Result:
    major, needed = gpu.driver.partition(".")[0], subject.needs.driver
    if not major.isdecimal():
        return skipped("driver", f"its version is {gpu.driver!r}: expected a number")
    if int(major) < needed:
        what = f"version {gpu.driver}, at least {needed} is needed"
        mend = f"install driver {needed} or newer, the open kernel modules, and reboot"
        return finding("driver", what, "the image's CUDA does not start on an older one", mend)
    return ok("driver", f"version {gpu.driver}, at least {needed} is needed")


def _chosen(subject: Subject, found: list[Gpu]) -> tuple[list[Gpu], list[Result]]:
    """The GPUs that the launch names, and what is to be said of them."""
    wanted, knob = subject.launch.gpus, subject.knob("gpus")
    parts = [name for name in wanted if name.startswith("MIG-")]
    if parts:
        reason = f"{some(parts)}: parts of GPUs are not looked at"
        return [], [skipped(name, reason) for name in _NAMES[1:]]
    chosen = [gpu for name in wanted for gpu in found if name in (gpu.index, gpu.uuid)]
    missing = [name for name in wanted if all(name not in (gpu.index, gpu.uuid) for gpu in found)]
    if missing:
        there = some([f"{gpu.index} ({gpu.uuid})" for gpu in found], 8)
        what = f"no GPU {some(missing)}; there {'is' if len(found) == 1 else 'are'} {there}"
        product = f"{subject.knob('tp')} x {subject.knob('dp')}"
        why = f"{product} = {len(wanted)} GPUs serve it, which {knob} names"
        return chosen, [finding("GPUs", what, why, f"--set {knob}=..., and {product} as many")]
    if twice := sorted({gpu.index for gpu in chosen if chosen.count(gpu) > 1}):
        why = "each process needs a GPU of its own"
        return chosen, [finding("GPUs", f"{knob} names {some(twice)} twice", why, f"--set {knob}=...")]
    needed = subject.needs.compute_capabilities
    unfit = [f"{gpu.label} has {gpu.capability}" for gpu in chosen if gpu.capability not in needed]
    if unfit:
        what = f"compute capability {' or '.join(needed)} is needed: {some(unfit, 8)}"
        why = "the image's kernels are machine code for it alone"
        return chosen, [finding("GPUs", what, why, f"--set {knob}=... with cards that have it (nvidia-smi -L)")]
    labels = some([gpu.label for gpu in chosen], 8)
    return chosen, [ok("GPUs", f"{labels}: compute capability {' or '.join(needed)}")]


def _memory(subject: Subject, host: Host, chosen: list[Gpu]) -> Result:
    setting = subject.of_flag("--gpu-memory-utilization")
    if setting is None or not isinstance(setting.value, int | float):
        return skipped("GPU memory", "the share that vLLM takes is left to it")
    share = setting.value
    short, seen = [], 0
    for gpu in dict.fromkeys(chosen):
        if gpu.total is None or gpu.used is None:
            continue
        seen += 1
        if gpu.total - gpu.used < share * gpu.total:
            users = some(nvidia_smi.processes(host, gpu.uuid)) or "nvidia-smi names no process"
            free = f"{gib(gpu.total - gpu.used)} of {gib(gpu.total)} free"
            short.append(f"{gpu.label} has {free}, and {gib(share * gpu.total)} are taken at the start: {users}")
    if short:
        why = "vLLM ends where less is free than the share that it is to take"
        mend = f"end those processes (nvidia-smi lists them), or take a smaller share: --set {setting.knob.name}=..."
        return finding("GPU memory", some(short, 8), why, mend)
    if not seen:
        return skipped("GPU memory", "the driver does not say how much there is")
    return ok("GPU memory", f"each of {seen} has {share:g} of it free")
