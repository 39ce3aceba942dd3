"""A launch as a command of Docker's."""

import csv
import io

from serving.launch.key import VARIABLE
from serving.launch.launch import Bind, Launch

# /dev/shm is the host's own, so that what a crashed server leaves there can be seen and cleared.
_FIXED = ("--ipc=host", "--cap-drop=ALL", "--security-opt=no-new-privileges")


def options(launch: Launch) -> list[str]:
    """Options of docker create and docker run, one word each, without the container's name."""
    devices = ",".join(launch.gpus)
    words = [f"--gpus={_record([f'device={devices}'])}", *_FIXED]
    words += [f"--ulimit={name}={value}" for name, value in launch.ulimits.items()]
    if launch.network in ("host", "none"):
        words.append(f"--network={launch.network}")
    elif launch.api:
        address = f"[{launch.bind}]" if ":" in launch.bind else launch.bind
        words.append(f"--publish={address}:{launch.port}:{launch.inner_port}")
    words += [f"--mount={_mount(bind)}" for bind in launch.binds]
    words += [f"--env={name}={value}" for name, value in launch.environment.items()]
    if launch.key and launch.api:
        # A name without a value is taken from the environment, and so stays out of process lists.
        words.append(f"--env-file={launch.key.file}" if launch.key.file else f"--env={VARIABLE}")
    return [*words, *launch.docker_options]


def run(launch: Launch, *more: str, program: str = "docker") -> list[str]:
    """The words of `docker run`; `more` are further options, before all others."""
    return [program, "run", *more, f"--name={launch.name}", *options(launch), launch.image, *launch.arguments]


def _mount(bind: Bind) -> str:
    kind = "volume" if bind.is_volume else "bind"
    fields = [f"type={kind}", f"source={bind.source}", f"target={bind.target}"]
    return _record(fields if bind.write else [*fields, "readonly"])


def _record(fields: list[str]) -> str:
    """One record of the CSV in which Docker takes the fields of --mount and --gpus."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(fields)
    return out.getvalue()
