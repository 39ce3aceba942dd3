"""An operator's host for tests: a tree with two releases of stand-ins, a profile, a checkpoint, a state of its own."""

import json
import os
import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from tests.engine.engines import Dockerd
from tests.engine.loading import load
from tests.engine.ports import free_port
from tests.release.toy import LINE, R0, R1, Toy, make_toy
from tests.standin.image import STEPS, make_layout
from tests.standin.server.behaviour import FILE

_PROFILE = Path(__file__).absolute().parents[2] / "serving/profiles/dsv41.toml"
# dsv41's profile under the toy line's name, for one GPU, with starts of seconds, also on a machine that is busy.
_CHANGES = (
    (r'^line = "dsv41"$', f'line = "{LINE}"'),
    (r'^default = "dsv41"$', f'default = "{LINE}"'),
    (r'^default = "dsv41-cache"$', f'default = "{LINE}-cache"'),
    (r'(?<=^\[knobs\.TP\]\nkind = "integer"\nrole = "tp"\ndefault = )4$', "1"),
    (r"^shared_memory_gib = 32$", "shared_memory_gib = 1"),
    (r"(?<=^\[start\]\nexpected_seconds = )\d+\ndeadline_seconds = \d+$", "2\ndeadline_seconds = 120"),
    (r"(?<=^\[first_start\]\nexpected_seconds = )\d+\ndeadline_seconds = \d+$", "3\ndeadline_seconds = 120"),
)


@dataclass(frozen=True)
class Host:
    """A host with nothing served on it yet.

    Attributes:
        folder: everything but the engine lies below it.
        toy: the tree with the releases R0 and R1 of LINE, which the engine has.
        docker: the engine.
        model: folder of the checkpoint.
        port: free TCP port for the server.
        environment: variables that make moet work here.
    """

    folder: Path
    toy: Toy
    docker: Dockerd
    model: Path
    port: int
    environment: Mapping[str, str]

    @property
    def state(self) -> Path:
        """Where moet keeps what it knows of servers: a folder for each."""
        return Path(self.environment["XDG_STATE_HOME"]) / "moet/servers"

    def behave(self, **how: Any) -> None:
        """Tells the stand-ins of this host how to behave from now on: tests/standin/server/behaviour.py."""
        # In place of the old one at one stroke: a server may be reading it.
        draft = self.model / f".{FILE}"
        draft.write_text(json.dumps(how))
        draft.rename(self.model / FILE)

    def serve(self, verb: str, *more: str) -> list[str]:
        """The arguments of `moet serve VERB` here, before those of the verb itself."""
        return ["serve", verb, *more, "--tree", str(self.toy.root)]


def make_host(folder: Path, docker: Dockerd) -> Host:
    """Makes a host below `folder`; its images are in the engine, which is cleared of others and of containers."""
    for found in docker.client.api.containers(all=True):
        docker.client.api.remove_container(found["Id"], force=True, v=True)
    toy = make_toy(folder, make_layout, STEPS, {f"serving/profiles/{LINE}.toml": _profile()})
    own = {tag: toy.image(tag).config.digest for tag in (R0, R1)}
    for image in docker.client.images.list():
        # What other tests left: other names, and images of files that were others then.
        for name in [tag for tag in image.tags if own.get(tag) != image.id] or ([] if image.tags else [str(image.id)]):
            docker.client.images.remove(name, force=True)
    for tag in own:
        load(DockerEngine(docker.host), layout.read(toy.image(tag).directory), tag)
    (folder / "cache").mkdir()
    os.chown(folder / "cache", 1000, 1000)
    port = free_port()
    environment = {
        "XDG_STATE_HOME": str(folder / "state"),
        # Docker's credentials and settings would be there.
        "HOME": str(folder / "home"),
        "DOCKER_HOST": docker.host,
        "MODEL_DIR": str(_checkpoint(folder / "model")),
        "CACHE_DIR": str(folder / "cache"),
        "PORT": str(port),
        "PYTHONPATH": ":".join(entry for entry in sys.path if entry),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Host(folder, toy, docker, folder / "model", port, environment)


def enter(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives this process the host's environment."""
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)


def _profile() -> str:
    text = _PROFILE.read_text(encoding="utf-8")
    for old, new in _CHANGES:
        text, times = re.subn(old, new, text, flags=re.MULTILINE)
        assert times == 1, f"{_PROFILE}: {old}: expected once, found {times} times"
    return text


def _checkpoint(folder: Path) -> Path:
    """A checkpoint that preflight takes for whole: a configuration, an index and one shard."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "deepseek_v41", "num_hidden_layers": 1}))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (folder / "model-00001-of-00001.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    index = {"metadata": {"total_size": 4}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
