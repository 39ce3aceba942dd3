"""A host, a checkpoint and an engine made up for tests; all is as a server needs it until a test changes it."""

import json
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.engine.interface import EngineImage
from serving.launch import settings
from serving.launch.plan import plan
from serving.preflight import programs
from serving.preflight.host import Host, Space
from serving.preflight.programs import Done
from serving.preflight.result import Result
from serving.preflight.subject import Subject
from serving.profiles import load

IMAGE = "dsv41:vllm0.33.0-r2"
_BLACKWELL = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"


def subject(model: Path, *given: str, released: bool = True) -> Subject:
    """What `moet serve preflight dsv41` would look at; `given` as --set has it."""
    words = [f"MODEL_DIR={model}", *given]
    words += [] if any(word.startswith("IMAGE=") for word in given) else [f"IMAGE={IMAGE}"]
    found = settings.resolve(load.load("dsv41"), words, {})
    return Subject(plan(found, str(found.of("image").value), None, "published").launch, found, released)


def shard(sizes: Mapping[str, int]) -> bytes:
    """A safetensors file with a tensor of U8 for each name, of that many bytes."""
    header, at = dict[str, Any](), 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


def checkpoint(folder: Path, shards: int = 3) -> Path:
    """A whole checkpoint of `shards` shards, each with two tensors."""
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "config.json").write_text('{"model_type": "deepseek_v41"}')
    index = dict[str, str]()
    for number in range(shards):
        name = f"model-{number}.safetensors"
        tensors = {f"layers.{number}.w": 1000, f"layers.{number}.scale": 10}
        (folder / name).write_bytes(shard(tensors))
        index |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


@dataclass
class FakeDocker:
    """An engine that says what a test tells it to."""

    name: str = "docker 28.2.2"
    info: Mapping[str, Any] = field(default_factory=lambda: {"Runtimes": {"nvidia": {}, "runc": {}}})
    running: list[dict[str, Any]] = field(default_factory=list)
    images: tuple[str, ...] = (IMAGE,)
    closed: bool = False

    def containers(self) -> list[dict[str, Any]]:
        """All containers."""
        return self.running

    def find(self, name: str) -> EngineImage | None:
        """The image, if a test named it."""
        return EngineImage(f"sha256:{'a' * 64}", (name,), (), {}) if name in self.images else None

    def close(self) -> None:
        """Notes it."""
        self.closed = True


def container(name: str, state: str, port: int | None = None) -> dict[str, Any]:
    """A container as GET /containers/json has it."""
    ports = [{"IP": "127.0.0.1", "PrivatePort": 8000, "PublicPort": port, "Type": "tcp"}] if port else []
    return {"Names": [f"/{name}"], "State": state, "Image": IMAGE, "Ports": ports}


def smi(folder: Path, gpus: str, processes: str = "", status: int = 0) -> Callable[[Sequence[str]], Done]:
    """Writes a program nvidia-smi that answers both queries, and returns what runs it."""
    folder.mkdir(exist_ok=True)
    (folder / "gpus").write_text(gpus)
    (folder / "processes").write_text(processes)
    program = folder / "nvidia-smi"
    answers = f'--query-gpu=*) cat "{folder}/gpus" ;; *) cat "{folder}/processes" ;;'
    program.write_text(f'#!/bin/sh\ncase "$1" in {answers} esac\nexit {status}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return lambda words: programs.run([str(folder / words[0]), *words[1:]])


def card(index: int, capability: str = "12.0", used: int = 3, driver: str = "580.95.05", name: str = _BLACKWELL) -> str:
    """A line of nvidia-smi's; `used` in MiB of 97,887."""
    return f"{index}, GPU-{index:08d}-0000, {name}, {capability}, 97887, {used}, {driver}\n"


def pci(sys: Path, *paths: str, vendor: str = "0x10de") -> None:
    """Adds a card at each path below /sys/devices, such as pci0000:00/0000:00:01.0/0000:01:00.0."""
    listed = sys / "bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    for path in paths:
        folder = sys / "devices" / path
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text("0x030200\n")
        os.symlink(folder, listed / folder.name)


def config_space(control: int) -> bytes:
    """4096 bytes of a bridge's configuration space: advanced error reporting at 100h, then ACS at 148h."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x14810001).to_bytes(4, "little")
    space[0x148:0x14C] = (0x0001000D).to_bytes(4, "little")
    space[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(space)


def host(root: Path, **changes: Any) -> Host:
    """A host with four cards below one bridge each, 64 GiB of /dev/shm, and 256 GiB available."""
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {512 << 20} kB\nMemAvailable: {256 << 20} kB\n")
    (root / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz ro quiet\n")
    pci(root / "sys", *(f"pci0000:00/0000:00:0{number}.0/0000:0{number}:00.0" for number in range(1, 5)))
    for bridge in (root / "sys/devices/pci0000:00").iterdir():
        (bridge / "config").write_bytes(config_space(0))
    given: dict[str, Any] = {
        "proc": root / "proc",
        "sys": root / "sys",
        "space": lambda _path: Space(total=64 << 30, free=64 << 30, inodes=10**6, read_only=False),
        "run": smi(root / "bin", "".join(card(number) for number in range(4))),
        "docker": FakeDocker,
    }
    return Host(**{**given, **changes})


def free_port() -> int:
    """A TCP port of loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def only(results: Sequence[Result], check: str) -> Result:
    """The one result of a check."""
    (found,) = [one for one in results if one.check == check]
    return found
