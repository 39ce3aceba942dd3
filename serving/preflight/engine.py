"""The engine: its support for GPUs, the image, and containers that are in the way."""

import shlex
from typing import Any

from images.engine.errors import EngineError
from images.engine.reference import parse
from serving.preflight.host import Docker
from serving.preflight.result import Result, finding, ok, skipped
from serving.preflight.subject import Subject

_CDI_KIND = "nvidia.com/gpu="
_LIVE = ("running", "paused", "restarting")


def unreachable(error: EngineError) -> list[Result]:
    """What is said where no engine answers."""
    rest = [skipped(name, "no engine answers") for name in ("engine's GPUs", "image", "container")]
    return [finding("engine", str(error), "the server runs in a container", "systemctl start docker"), *rest]


def check(subject: Subject, engine: Docker) -> list[Result]:
    """Whether the engine can hand on GPUs, has the image, and has the container's name free. Raises EngineError."""
    return [ok("engine", engine.name), _gpus(engine), _image(subject, engine), _container(subject, engine)]


def publisher(engine: Docker | None, port: int) -> tuple[str, str] | None:
    """Name and image of the running container that publishes a TCP port of the host; None for none, or no engine."""
    for found in engine.containers() if engine else []:
        ports = found.get("Ports") or []
        if any(one.get("PublicPort") == port and one.get("Type", "tcp") == "tcp" for one in ports):
            return _name(found), str(found.get("Image"))
    return None


def _gpus(engine: Docker) -> Result:
    runtimes = engine.info.get("Runtimes") or {}
    if "nvidia" in runtimes:
        return ok("engine's GPUs", "the nvidia runtime is registered")
    devices = engine.info.get("DiscoveredDevices") or []
    if any(str(one.get("ID", "")).startswith(_CDI_KIND) for one in devices):
        return ok("engine's GPUs", "CDI devices of NVIDIA's are there")
    return finding(
        "engine's GPUs",
        "the engine has neither an nvidia runtime nor CDI devices of NVIDIA's",
        "docker run --gpus needs NVIDIA's container toolkit",
        "apt-get install nvidia-container-toolkit && nvidia-ctk runtime configure --runtime=docker"
        " && systemctl restart docker",
    )


def _image(subject: Subject, engine: Docker) -> Result:
    name = subject.launch.image
    found = engine.find(name)
    if found is not None:
        return ok("image", f"{name} is {found.image_id}")
    why = "docker run would ask a registry for it, which lacks it or has another of that name"
    return finding("image", f"{engine.name} does not have {name}", why, _get(subject))


def _get(subject: Subject) -> str:
    name, knob = subject.launch.image, subject.knob("image")
    base = name.partition("@")[0]
    if parse(base if ":" in base.rpartition("/")[2] else f"{base}:any").registry:
        return f"docker pull {shlex.quote(name)}"
    if subject.released:
        return f"moet image load {shlex.quote(name)}"
    return f"bazel run //images/{subject.launch.line}:load, or --set {knob}=IMAGE, one that the engine has"


def _container(subject: Subject, engine: Docker) -> Result:
    launch = subject.launch
    for found in engine.containers():
        if _name(found) != launch.name:
            continue
        state, image = found.get("State"), found.get("Image")
        quoted, why = shlex.quote(launch.name), "a name is given to one container at a time"
        if state in _LIVE:
            own = publisher(engine, launch.port)
            reached = f", and serves port {launch.port}" if own and own[0] == launch.name else ""
            what = f"{launch.name} is {state} already, from {image}{reached}"
            mend = f"nothing, if that is the server; docker rm -f {quoted} ends it"
            return finding("container", what, why, mend)
        what = f"{launch.name} is there already, {state}, from {image}"
        return finding("container", what, why, f"docker rm {quoted}")
    return ok("container", f"the name {launch.name} is free")


def _name(container: dict[str, Any]) -> str:
    names = container.get("Names") or [""]
    return str(names[0]).removeprefix("/")
