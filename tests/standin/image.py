"""The stand-in's image: Moet's own entry point and attestation over a vLLM that only plays one."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from images.manifest import model
from images.oci import assemble
from serving.runtime.record import LAUNCHER
from tests.engine.synthetic import SITE, make_moet_layout, make_record, step

# With switches that dsv41's profile knows: one that is on by default, and one that is off.
STEPS = (step(1, "reasoning-tiers"), step(2, "native-next-n", default="0", numerics="rounding"))
_ROOT = Path(__file__).absolute().parents[2]
_ROOTFS = "tests/standin/rootfs"
# Where the stand-in's modules lie in the image, under their names from the root.
_HOME = "usr/lib/standin"
_SERVER = "tests/standin/server"
_MODULES = ("serving/check/png.py",)
_START = f"""#!/usr/bin/python3.11 -B
import sys
sys.path.insert(0, "/{_HOME}")
from tests.standin.server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
_ENVIRONMENT = {
    "HOME": "/var/lib/moet",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class NotBuiltError(Exception):
    """The root file system is not there; the message says how to make it."""


def make_layout(directory: Path, tag: str, *, steps: Sequence[model.Step] = STEPS, **more: Any) -> Path:
    """Writes the image `tag`, LINE:vllmVERSION-rN, as an OCI layout; returns its directory, which must not exist.

    `more` goes to make_moet_layout. Raises NotBuiltError.
    """
    version = tag.partition(":")[2].removeprefix("vllm").rpartition("-r")[0]
    return make_moet_layout(
        directory,
        tag,
        steps=steps,
        parts=[assemble.read_part(str(_rootfs()))],
        layers={"vllm": _vllm(version)},
        runtime=_runtime(),
        environment=_ENVIRONMENT,
        **more,
    )


def _rootfs() -> Path:
    """What Bazel made, without its endings: beside this file in a Bazel test, else in the tree's bazel-bin."""
    for place in (_ROOT, _ROOT / "bazel-bin"):
        if Path(f"{place}/{_ROOTFS}.tar.gz").exists():
            return place / _ROOTFS
    raise NotBuiltError(f"{_ROOTFS}.tar.gz: is not built: run `bazel build //tests/standin:rootfs_files`")


def _vllm(version: str) -> Mapping[str, bytes]:
    server = [f"{_SERVER}/{name}" for name in os.listdir(_ROOT / _SERVER) if name.endswith(".py")]
    files = {f"{_HOME}/{path}": (_ROOT / path).read_bytes() for path in sorted([*server, *_MODULES])}
    installed = {f"{SITE[1:]}/vllm/__init__.py": b"", LAUNCHER[1:]: _START.encode()}
    return {**files, **installed, model.record_path(SITE, "vllm", version)[1:]: make_record(installed)}


def _runtime() -> Mapping[str, bytes]:
    """The files of serving/runtime/files.bzl, which is Starlark that Python reads as well."""
    names: dict[str, Any] = {}
    exec((_ROOT / "serving/runtime/files.bzl").read_text(), names)
    placed = {**names["RUNTIME_FILES"], **names["RUNTIME_EXECUTABLES"]}
    return {path: (_ROOT / label.removeprefix("//").replace(":", "/")).read_bytes() for label, path in placed.items()}
