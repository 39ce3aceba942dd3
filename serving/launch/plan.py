"""From settings to a launch, and what each knob does in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.launch import extra
from serving.launch.key import Key
from serving.launch.launch import ALONE, Bind, Launch, Network, Node
from serving.launch.settings import Setting, Settings
from serving.profiles import fragments, values
from serving.profiles.model import Knob
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Plan:
    """A launch, and for each knob, by name, the parts of it that the knob makes; none where it passes nothing."""

    launch: Launch
    does: Mapping[str, tuple[str, ...]]


def plan(settings: Settings, image: str, key: Key | None, network: Network, node: Node = ALONE) -> Plan:
    """Plans a server.

    Args:
        settings: of every knob.
        image: by tag or digest.
        key: the API key's place.
        network: what the container's port is in.
        node: which of several hosts this is.

    Raises UserError where a required knob is not set, GPUs do not fit the parallelism, or an extra argument is one
    that Moet sets.
    """
    profile = settings.profile
    for setting in settings.by_name.values():
        if setting.knob.required and setting.value is None:
            name, kind = setting.knob.name, values.expected(setting.knob)
            raise UserError(
                f"{name} is not set: expected {kind}: {setting.knob.meaning}; --set {name}=..., or in the environment"
            )
    gpus = _gpus(settings, node)
    parts = _Parts(settings)
    for setting in settings.by_name.values():
        parts.add(setting)
    extra_words, docker = _words(settings, "arguments"), _words(settings, "docker")
    extra.check_arguments(_name(settings, "arguments"), extra_words, parts.flags(profile.serve.flags))
    extra.check_docker(_name(settings, "docker"), docker)
    inner_port = int(str(settings.of("port").value)) if network == "host" else profile.container.port
    reached = str(settings.of("bind").value) if network == "host" else "0.0.0.0"
    arguments = ["serve", profile.container.model, *profile.serve.flags, *parts.arguments()]
    arguments += _node_flags(node) + ([f"--host={reached}", f"--port={inner_port}"] if node.rank == 0 else [])
    offload = settings.of("offload").value
    launch = Launch(
        line=profile.line,
        title=profile.title,
        name=str(settings.of("name").value),
        image=image,
        gpus=gpus,
        network=network,
        bind=str(settings.of("bind").value),
        port=int(str(settings.of("port").value)),
        inner_port=inner_port,
        binds=tuple(parts.binds),
        environment={**profile.serve.environment, **parts.environment},
        arguments=(*arguments, *extra_words),
        ulimits=dict(profile.container.ulimits),
        shared_memory_gib=float(
            profile.container.shared_memory_gib + (offload if isinstance(offload, int | float) else 0)
        ),
        key=key,
        docker_options=docker,
        node=node,
    )
    return Plan(launch, {**parts.does, **_roles(settings, launch)})


class _Parts:
    """What the knobs turn into, one after another."""

    def __init__(self, settings: Settings) -> None:
        self._known = settings.values()
        self._by_name = settings.by_name
        # Flags in order; a dict is the JSON value of one, which several knobs have parts in.
        self._flags: dict[str, str | dict[str, Any] | None] = {}
        self.environment: dict[str, str] = {}
        self.binds: list[Bind] = []
        self.does: dict[str, tuple[str, ...]] = {}

    def add(self, setting: Setting) -> None:
        """Takes in what one knob turns into; nothing where it, or one that it needs, is off."""
        knob, value = setting.knob, setting.value
        does: list[str] = []
        if value is not None and setting.on and all(self._by_name[other].on for other in knob.needs):
            does = [*self._flag(knob, setting), *self._json(knob, setting), *self._variable(knob, setting)]
            if knob.mount and isinstance(value, str):
                self.binds.append(Bind(value, knob.mount.target, knob.mount.write))
                does.append(f"{knob.mount.target} is {value}, {'writable' if knob.mount.write else 'read-only'}")
        self.does[knob.name] = tuple(does)

    def flags(self, more: tuple[str, ...]) -> list[str]:
        """The names of all flags, and of `more`, which may have values."""
        return [*self._flags, *(flag.partition("=")[0] for flag in more)]

    def arguments(self) -> list[str]:
        """The flags with their values, one word each: a value may begin with a dash."""
        return [flag if value is None else f"{flag}={_compact(value)}" for flag, value in self._flags.items()]

    def _flag(self, knob: Knob, setting: Setting) -> list[str]:
        if not knob.flag:
            return []
        self._flags[knob.flag] = None if knob.kind == "boolean" else setting.text
        return [knob.flag if knob.kind == "boolean" else f"{knob.flag}={setting.text}"]

    def _json(self, knob: Knob, setting: Setting) -> list[str]:
        does = []
        for flag, fragment in knob.json.items():
            part = fragments.filled(fragment, {**self._known, "value": setting.value})
            before = self._flags.get(flag)
            self._flags[flag] = fragments.merged(before if isinstance(before, dict) else {}, part)
            does.append(f"{flag}={_compact(part)}")
        return does

    def _variable(self, knob: Knob, setting: Setting) -> list[str]:
        name = knob.name if knob.kind == "switch" else knob.environment
        # A switch that nobody set is left to the image, which may be older than it.
        if not name or (knob.kind == "switch" and setting.value == knob.default and not setting.explicit):
            return []
        self.environment[name] = setting.text
        return [f"{name}={setting.text}"]


def _compact(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _gpus(settings: Settings, node: Node) -> tuple[str, ...]:
    tp, dp, named = settings.of("tp"), settings.of("dp"), settings.of("gpus")
    whole = int(str(tp.value)) * int(str(dp.value))
    product = f"{tp.knob.name} x {dp.knob.name} = {tp.text} x {dp.text} = {whole}"
    if whole % node.count:
        raise UserError(f"{product} GPUs cannot be spread over {node.count} hosts evenly: choose others")
    each = whole // node.count
    if not isinstance(named.value, tuple):
        return tuple(str(number) for number in range(each))
    if len(named.value) != each:
        hosts = f" on each of {node.count} hosts" if node.count > 1 else ""
        raise UserError(
            f"{named.knob.name}={named.text} ({named.source}) names {len(named.value)}: {product} needs {each}{hosts}"
        )
    return named.value


def _words(settings: Settings, role: str) -> tuple[str, ...]:
    found = [one.value for one in settings.by_name.values() if one.knob.role == role]
    return tuple(word for value in found if isinstance(value, tuple) for word in value)


def _name(settings: Settings, role: str) -> str:
    return next((one.knob.name for one in settings.by_name.values() if one.knob.role == role), role)


def _node_flags(node: Node) -> list[str]:
    if node.count == 1:
        return []
    flags = [f"--nnodes={node.count}", f"--node-rank={node.rank}"]
    flags += [f"--master-addr={node.master}", f"--master-port={node.master_port}"]
    return flags + (["--headless"] if node.rank else [])


def _roles(settings: Settings, launch: Launch) -> dict[str, tuple[str, ...]]:
    """What the knobs do that play a part in the container itself."""
    does: dict[str, tuple[str, ...]] = {}
    parts = {
        "image": f"the image {launch.image}",
        "name": f"the name {launch.name}",
        "gpus": f"GPUs {','.join(launch.gpus)}",
        "bind": f"reached at {launch.bind}" if launch.api else "",
        "port": f"reached at port {launch.port}" if launch.api else "",
        "key": _key_words(launch.key),
        "arguments": values.show(_words(settings, "arguments")),
        "docker": values.show(launch.docker_options),
    }
    for setting in settings.by_name.values():
        if setting.knob.role in parts:
            words = parts[setting.knob.role]
            does[setting.knob.name] = (words,) if words else ()
    return does


def _key_words(key: Key | None) -> str:
    if key is None:
        return ""
    return f"requests need the key in {key.file}" if key.file else "requests need the key in the environment"
