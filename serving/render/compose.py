"""A launch as a file of the Compose Specification."""

from typing import Any

from serving.launch.key import VARIABLE
from serving.launch.launch import Bind, Launch
from serving.render import yaml_text
from serving.render.file import File
from tools.cli.errors import UserError

_RETRIES = 5


def render(launches: list[Launch]) -> list[File]:
    """One file a host. Raises UserError for what the form cannot say."""
    return [File(f"{launch.host_name}.compose.yaml", text(launch)) for launch in launches]


def text(launch: Launch) -> str:
    """The file of one host. Raises UserError as render()."""
    if launch.docker_options:
        raise UserError("EXTRA_DOCKER_ARGS: options of docker run have no place in a Compose file: leave them out")
    head = f"# Made by `moet serve render {launch.line} --form compose`. {launch.title}.\n"
    volumes = {bind.source: {"name": bind.source} for bind in launch.binds if bind.is_volume}
    document: dict[str, Any] = {"services": {launch.name: _service(launch)}}
    if volumes:
        document["volumes"] = volumes
    return yaml_text.dump([document], head)


def _service(launch: Launch) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": launch.image,
        "container_name": launch.name,
        "command": [_literal(word) for word in launch.arguments],
        "environment": {name: _literal(value) for name, value in launch.environment.items()},
    }
    if launch.key and launch.api:
        if launch.key.file:
            service["env_file"] = [_literal(launch.key.file)]
        else:
            service["environment"][VARIABLE] = f"${{{VARIABLE}:?is not set, the server would answer anyone}}"
    if launch.network == "host":
        service["network_mode"] = "host"
    elif launch.api:
        address = f"[{launch.bind}]" if ":" in launch.bind else launch.bind
        service["ports"] = [f"{address}:{launch.port}:{launch.inner_port}"]
    device = {"driver": "nvidia", "device_ids": list(launch.gpus), "capabilities": ["gpu"]}
    return service | {
        "volumes": [_volume(bind) for bind in launch.binds],
        "ipc": "host",
        "ulimits": dict(launch.ulimits),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
        "restart": f"on-failure:{_RETRIES}",
    }


def _volume(bind: Bind) -> dict[str, Any]:
    kind = "volume" if bind.is_volume else "bind"
    entry: dict[str, Any] = {"type": kind, "source": _literal(bind.source), "target": bind.target}
    return entry if bind.write else entry | {"read_only": True}


def _literal(value: str) -> str:
    """Text in which nothing is replaced by a variable."""
    return value.replace("$", "$$")
