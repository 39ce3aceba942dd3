"""What the SDK is told to create a launch: the same container that serving/launch/docker_command makes of it."""

import argparse
import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import docker.errors
from docker.types import DeviceRequest, HostConfig, LogConfig, Mount, Ulimit

from serving.containers import docker_options
from serving.launch.key import VARIABLE, check_file
from serving.launch.launch import Bind, Launch
from tools.cli.errors import UserError

_KNOB = "EXTRA_DOCKER_ARGS"
# The form of the API that knows every field used here: Docker 20.10's.
_VERSION = "1.41"
# Options of docker run that the SDK's HostConfig takes under another name, as they are.
_SAME = {
    "add_host": "extra_hosts",
    "blkio_weight": "blkio_weight",
    "cap_add": "cap_add",
    "cgroup_parent": "cgroup_parent",
    "cgroupns": "cgroupns",
    "cpu_shares": "cpu_shares",
    "cpuset_cpus": "cpuset_cpus",
    "cpuset_mems": "cpuset_mems",
    "device": "devices",
    "device_cgroup_rule": "device_cgroup_rules",
    "dns": "dns",
    "dns_search": "dns_search",
    "group_add": "group_add",
    "init": "init",
    "memory": "mem_limit",
    "memory_reservation": "mem_reservation",
    "memory_swap": "memswap_limit",
    "oom_score_adj": "oom_score_adj",
    "pid": "pid_mode",
    "pids_limit": "pids_limit",
    "privileged": "privileged",
    "read_only": "read_only",
    "runtime": "runtime",
    "shm_size": "shm_size",
    "userns": "userns_mode",
    "uts": "uts_mode",
}
# Likewise of the container's own part.
_OWN = {
    "domainname": "domainname",
    "hostname": "hostname",
    "interactive": "stdin_open",
    "stop_signal": "stop_signal",
    "tty": "tty",
    "user": "user",
    "workdir": "working_dir",
}


def check(launch: Launch) -> None:
    """Holds a launch against what create() takes, but for the key. Raises UserError, OSError."""
    create(launch, {}, "not asked for")


def create(launch: Launch, labels: Mapping[str, str], key: str | None) -> dict[str, Any]:
    """Arguments of docker.APIClient.create_container, but for the name.

    Args:
        launch: what is served.
        labels: of the container.
        key: the API key, where the launch takes it from the environment.

    Raises UserError for docker options that cannot be taken, and where the key is missing; OSError of its file.
    """
    options = docker_options.parse(_KNOB, launch.docker_options)
    own = {name: getattr(options, word) for word, name in _OWN.items() if getattr(options, word) is not None}
    try:
        host = _host(launch, options)
    except (docker.errors.DockerException, TypeError, ValueError) as error:
        raise UserError(f"{_KNOB}: {error}: expected what docker run takes") from None
    anonymous = [volume for volume in options.volume or () if ":" not in volume]
    published = launch.network not in ("host", "none") and launch.api
    return {
        **own,
        "image": launch.image,
        "command": list(launch.arguments),
        "entrypoint": None if options.entrypoint is None else [options.entrypoint],
        "environment": _environment(launch, options.env or (), key),
        "labels": {**labels, **{name: value for name, _, value in (one.partition("=") for one in options.label or ())}},
        "volumes": anonymous or None,
        "ports": [(launch.inner_port, "tcp")] if published else None,
        "host_config": host,
    }


def _host(launch: Launch, options: argparse.Namespace) -> HostConfig:
    """The host's part. Raises the SDK's errors, ValueError and TypeError, which all name what is wrong."""
    same = {name: getattr(options, word) for word, name in _SAME.items() if getattr(options, word) is not None}
    published = launch.network not in ("host", "none") and launch.api
    return HostConfig(
        _VERSION,
        **same,
        binds=[volume for volume in options.volume or () if ":" in volume] or None,
        cap_drop=["ALL", *(options.cap_drop or ())],
        device_requests=[DeviceRequest(device_ids=list(launch.gpus), capabilities=[["gpu"]])],
        ipc_mode=options.ipc or "host",
        log_config=_log(options),
        mounts=[*(_bind(one) for one in launch.binds), *(_mount(text) for text in options.mount or ())],
        nano_cpus=None if options.cpus is None else round(options.cpus * 1e9),
        network_mode=launch.network if launch.network in ("host", "none") else "default",
        port_bindings={launch.inner_port: (launch.bind, launch.port)} if published else None,
        restart_policy={"Name": "no"},
        security_opt=["no-new-privileges", *(_security(text) for text in options.security_opt or ())],
        sysctls=_pairs(options.sysctl) or None,
        tmpfs={path: more for path, _, more in (one.partition(":") for one in options.tmpfs or ())} or None,
        ulimits=_ulimits(launch.ulimits, options.ulimit or ()),
    )


def _bind(bind: Bind) -> Mount:
    return Mount(bind.target, bind.source, "volume" if bind.is_volume else "bind", not bind.write)


def _environment(launch: Launch, more: Sequence[str], key: str | None) -> list[str]:
    found = [f"{name}={value}" for name, value in launch.environment.items()]
    if launch.key and launch.api:
        if launch.key.file:
            # As Docker's command does, which reads env files first.
            check_file(Path(launch.key.file))
            found.insert(0, Path(launch.key.file).read_text(encoding="utf-8").strip())
        elif key:
            found.append(f"{VARIABLE}={key}")
        else:
            raise UserError(f"{VARIABLE} is not set: this server has an API key: set it in the environment")
    # A name alone is taken from here; where it is not set, it takes the image's variable of that name away.
    return found + [one if "=" in one or one not in os.environ else f"{one}={os.environ[one]}" for one in more]


def _ulimits(own: Mapping[str, int], more: Sequence[str]) -> list[Ulimit]:
    found = {name: (value, value) for name, value in own.items()}
    for text in more:
        name, _, values = text.partition("=")
        soft, _, hard = values.partition(":")
        found[name] = (int(soft), int(hard or soft))
    return [Ulimit(name=name, soft=soft, hard=hard) for name, (soft, hard) in found.items()]


def _log(options: argparse.Namespace) -> LogConfig | None:
    if options.log_driver is None and not options.log_opt:
        return None
    # With options alone, the engine's own driver is meant.
    return LogConfig(type=options.log_driver or "", config=_pairs(options.log_opt))


def _security(text: str) -> str:
    name, _, value = text.partition("=")
    if name != "seccomp" or value in ("unconfined", "builtin"):
        return text
    # The engine takes a profile itself, not where it lies.
    try:
        return f"seccomp={json.dumps(json.loads(Path(value).read_text(encoding='utf-8')), separators=(',', ':'))}"
    except (OSError, ValueError) as error:
        raise ValueError(f"--security-opt {text}: {error}") from None


def _pairs(texts: Sequence[str] | None) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in texts or ())}


_MOUNT_KEYS = {"src": "source", "destination": "target", "dst": "target", "ro": "readonly"}


def _mount(text: str) -> Mount:
    """A value of --mount: one record of CSV with NAME=VALUE fields."""
    (record,) = csv.reader([text])
    pairs = [field.partition("=") for field in record]
    fields = {_MOUNT_KEYS.get(name, name): value if equals else "true" for name, equals, value in pairs}
    kind, target = fields.pop("type", "volume"), fields.pop("target", "")
    source, readonly = fields.pop("source", None), fields.pop("readonly", "false")
    more: dict[str, Any] = {}
    if "bind-propagation" in fields:
        more["propagation"] = fields.pop("bind-propagation")
    if "tmpfs-size" in fields:
        more["tmpfs_size"] = fields.pop("tmpfs-size")
    if "tmpfs-mode" in fields:
        more["tmpfs_mode"] = int(fields.pop("tmpfs-mode"), 8)
    if fields or not target:
        wrong = next(iter(fields), None)
        raise ValueError(f"--mount {text}: {f'{wrong} is not taken here' if wrong else 'target is missing'}")
    if kind not in ("bind", "volume", "tmpfs"):
        raise ValueError(f"--mount {text}: type {kind} is not taken here")
    return Mount(target, source, cast(Literal["bind", "volume", "tmpfs"], kind), readonly in ("true", "1"), **more)
