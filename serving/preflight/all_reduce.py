"""Sums between the cards, as the server's: run for real in a container of its image, with a deadline."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from images.engine.errors import EngineError
from serving.launch.launch import Launch
from serving.preflight import collective_run, collective_wording, nvidia_smi
from serving.preflight.collective_run import BusyError, Containers, NoResultError
from serving.preflight.collective_wording import SUMS
from serving.preflight.host import Docker, Host
from serving.preflight.nvidia_smi import DriverError, Gpu, NoDriverError
from serving.preflight.result import Result, finding, gib, skipped, some
from serving.preflight.subject import Subject
from tools.cli.errors import UserError

Doing = Callable[[str], AbstractContextManager[None]]

# A desktop on a card takes less; a server more.
_FREE_USE = 4 << 30
_OFF = "NCCL_P2P_DISABLE"
_WHY = "the server's own container is made, and does the same, before it can serve"


def check(subject: Subject, host: Host, engine: Docker | None, doing: Doing) -> list[Result]:
    """Copies and sums between the GPUs, in groups of the tensor parallelism, where nobody else uses them.

    `doing` is entered with a line of what goes on for as long as it does.
    """
    launch = subject.launch
    tp = min(int(str(subject.settings.of("tp").value)), len(launch.gpus))
    if tp < 2:
        return [skipped(SUMS, "each copy of the model is on one GPU, which sums with no other")]
    try:
        if reason := _hindrance(launch, host, engine):
            return [skipped(SUMS, reason)]
        containers = host.containers()
    except EngineError as error:
        return [skipped(SUMS, str(error))]
    try:
        most = collective_run.DEADLINE_S / 60
        with doing(f"{SUMS}: GPU {', '.join(launch.gpus)}, about a minute; {most:.0f} where they hang"):
            return _tried(subject, containers, tp)
    except BusyError as error:
        return [skipped(SUMS, str(error))]
    except UserError as error:
        return [finding(SUMS, str(error), _WHY, "journalctl -u docker -n 50")]
    finally:
        containers.close()


def _hindrance(launch: Launch, host: Host, engine: Docker | None) -> str:
    """Why nothing can be run on the GPUs, or should not be; "" where it can. Raises EngineError."""
    if engine is None:
        return "no engine answers"
    if engine.find(launch.image) is None:
        return f"{engine.name} does not have {launch.image}"
    try:
        found = nvidia_smi.gpus(host)
    except NoDriverError as error:
        return str(error)
    except DriverError:
        return "nvidia-smi fails"
    for name in launch.gpus:
        gpu = next((one for one in found if name in (one.index, one.uuid)), None)
        if gpu is None:
            return f"nvidia-smi lists no GPU {name}"
        if users := _users(host, gpu):
            return f"{gpu.label} is in use, and is not disturbed: {users}"
    return ""


def _users(host: Host, gpu: Gpu) -> str:
    names = nvidia_smi.processes(host, gpu.uuid)
    if names:
        return some(names)
    return f"{gib(gpu.used)} are taken" if gpu.used is not None and gpu.used > _FREE_USE else ""


def _tried(subject: Subject, containers: Containers, tp: int) -> list[Result]:
    launch, groups, results = subject.launch, len(subject.launch.gpus) // tp, list[Result]()
    try:
        found = collective_run.run(containers, launch, tp, groups)
        if not found.torch:
            return [skipped(SUMS, f"{launch.image} has no torch")]
        results += collective_wording.results(subject, found)
        if any(group.bad for group in found.groups):
            # Where it goes without reads between GPUs, these are what is wrong.
            without = collective_run.run(containers, launch, tp, groups, {_OFF: "1"})
            results.append(collective_wording.without(subject, without))
    except NoResultError as error:
        results.append(finding(SUMS, str(error), _WHY, f"docker run --rm {launch.image} attest; nvidia-smi; dmesg"))
    return results
