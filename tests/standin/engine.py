"""A dockerd of a test's own that serves: with a network, ports on this host, and GPUs that nobody has."""

import ipaddress
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine import scratch
from tests.engine.engines import PATH, Dockerd, private_dockerd

# Docker 20.10 takes device requests for GPUs where this program is on its PATH; it runs it before each container.
_HOOK = "nvidia-container-runtime-hook"
# RFC 2544's addresses are nobody's: 8192 networks of 16 each, from which every bridge takes another.
_NETWORK, _NETWORKS = ipaddress.IPv4Address("198.18.0.0"), 8192
_made = itertools.count(os.getpid())


@contextmanager
def serving_dockerd(data_root: Path | None = None) -> Iterator[Dockerd]:
    """A private dockerd with a bridge of its own; a published port is reached at this host's loopback address.

    Raises EngineUnavailableError.
    """
    with scratch.folder() as folder, _bridge() as (bridge, address):
        (folder / _HOOK).write_text("#!/bin/sh\nexit 0\n")
        (folder / _HOOK).chmod(0o755)
        shutil.copy(Path(__file__).with_name("runc.py"), folder / "runc.py")
        (folder / "runc.py").chmod(0o755)
        options = [f"--bridge={bridge}", f"--fixed-cidr={address}", "--userland-proxy=true"]
        # By this name Docker's users know that an engine has GPUs.
        options += [f"--add-runtime=nvidia={folder}/runc.py", "--default-runtime=nvidia"]
        with private_dockerd(data_root, options, f"{folder}:{PATH}") as engine:
            yield engine


@contextmanager
def _bridge() -> Iterator[tuple[str, str]]:
    """A new bridge of the kernel's: its name, and its network."""
    number = next(_made)
    name, first = f"moet{number}", _NETWORK + number % _NETWORKS * 16
    _ip("link", "add", name, "type", "bridge")
    try:
        _ip("address", "add", f"{first + 1}/28", "dev", name)
        _ip("link", "set", name, "up")
        yield name, f"{first}/28"
    finally:
        _ip("link", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], env={**os.environ, "PATH": PATH}, check=True, capture_output=True)
