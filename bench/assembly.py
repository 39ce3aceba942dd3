"""Assembling an image from fetched wheels: Moet's way against others', on the same content, in alternating order."""

import fnmatch
import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench import meter, peers, programs
from bench.meter import Cost
from bench.peers import Peer, Sample
from bench.plan import Plan, WheelLayer
from bench.programs import BenchError, Word
from images.oci import layer as oci_layer
from tests.engine import scratch
from third_party.python.lock import uv_binary

OURS = "Moet: wheels to layout"
INSTALL = "uv: wheels to a tree"
# The environment of Bazel's actions, with --incompatible_strict_action_env.
_ACTION = {"PATH": "/bin:/usr/bin:/usr/local/bin"}
_SITE = "usr/local/lib/python3.11"
# What an installer writes of its own accord, and the scripts in which it names its interpreter.
_INSTALLERS_OWN = ("*.dist-info/*", "usr/local/bin/*", "usr/local/.lock")


@dataclass
class Samples:
    """What was measured: each way's runs by name, the installation of the wheels apart."""

    ours: list[Sample] = field(default_factory=list)
    install: list[Cost] = field(default_factory=list)
    peers: dict[str, list[Sample]] = field(default_factory=dict)
    files: int = 0
    unpacked_bytes: int = 0


def compare(
    plan: Plan, ways: Sequence[Peer], rounds: int, work: Path, samples: Samples, progress: Callable[[str], None]
) -> None:
    """Measure every way `rounds` times into `samples`, each round in the other order; folders come and go in `work`.

    Raises:
        BenchError: a program failed, or installed tree and layers do not hold the same content.
    """
    for wheel in plan.wheels:
        _read(wheel)
    samples.peers.update({way.name: [] for way in ways})
    for turn in range(rounds):
        with scratch.folder(work) as folder:
            tree = peers.make_context(folder / "context")
            progress(INSTALL)
            samples.install.append(_install(plan, tree, folder / "uv"))
            order = [None, *ways]
            for way in reversed(order) if turn % 2 else order:
                progress(way.title if way else OURS)
                with scratch.folder(folder) as place:
                    if way:
                        samples.peers[way.name].append(way.make(tree.parent, place))
                    else:
                        samples.ours.append(_ours(plan, place))
                        samples.files, samples.unpacked_bytes = _check_content(plan, place, tree)


def _ours(plan: Plan, folder: Path) -> Sample:
    """Layers, as many at once as Bazel runs actions (one a core), then the layout."""
    layout = folder / "layout"
    (folder / "labels.json").write_text(json.dumps(_LABELS))
    (folder / "spec.json").write_text(json.dumps(_SPEC))

    def make() -> None:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda layer: _layer(plan, layer, folder), plan.layers))
        command = [f"--spec={folder}/spec.json", f"--labels={folder}/labels.json", f"--out={layout}"]
        command += [f"--digest={folder}/digest", *(f"--layer={folder / layer.name}" for layer in plan.layers)]
        _action([plan.assemble, *command])

    return Sample(meter.measure(make), peers.layout_bytes(layout))


_LABELS = {"org.opencontainers.image.created": "1980-01-01T00:00:00Z"}

_SPEC = {
    "cmd": [],
    "entrypoint": [],
    "env": {},
    "reference": "bench:bench",
    "replaces": {},
    "user": "",
    "workdir": "/",
}


def _layer(plan: Plan, layer: WheelLayer, folder: Path) -> None:
    command = [f"--name={layer.name}", f"--comment={layer.comment}", f"--mtime={layer.mtime}"]
    command += [f"--out={folder / layer.name}", *(f"--drop={glob}" for glob in layer.drop)]
    _action([plan.wheel_layer, *command, *layer.wheels])


def _action(command: Sequence[Word]) -> None:
    done = programs.call(command, _ACTION)
    if done.returncode:
        raise BenchError(f"{Path(command[0]).name} failed: {programs.last_line(done)}")


def _install(plan: Plan, tree: Path, folder: Path) -> Cost:
    """Installs the wheels into `tree` with uv, which has nothing in its cache; the peers need it, Moet does not."""
    folder.mkdir()
    uv = folder / "uv"
    shutil.copyfile(uv_binary(), uv)
    uv.chmod(0o755)
    command: list[Word] = [uv, "pip", "install", "--no-config", "--no-deps", "--no-index", "--offline", "--quiet"]
    command += ["--cache-dir", folder / "cache", "--python", "/usr/bin/python3.11", "--prefix", tree / "usr/local"]
    cost = meter.measure(lambda: programs.run([*command, *plan.wheels], {"HOME": str(folder)}))
    (tree / _SITE / "site-packages").rename(tree / _SITE / "dist-packages")
    drop = [glob for layer in plan.layers for glob in layer.drop]
    for path in _files(tree) if drop else []:
        if any(fnmatch.fnmatchcase(path, glob) for glob in drop):
            (tree / path).unlink()
    return cost


def _files(tree: Path) -> list[str]:
    return [os.path.relpath(os.path.join(place, name), tree) for place, _, names in os.walk(tree) for name in names]


def _check_content(plan: Plan, folder: Path, tree: Path) -> tuple[int, int]:
    """Returns the layers' files and bytes, after comparing paths and sizes with the installed tree's.

    Raises:
        BenchError: the two differ in more than an installer's own files.
    """
    ours = {
        entry.path: entry.size
        for layer in plan.layers
        for entry in oci_layer.read_listing(folder / f"{layer.name}.files.json")
        if entry.type == "f"
    }
    theirs = {path: (tree / path).stat().st_size for path in _files(tree)}
    for path in sorted(ours.keys() | theirs.keys()):
        same = ours.get(path) == theirs.get(path)
        if not same and not any(fnmatch.fnmatchcase(path, glob) for glob in _INSTALLERS_OWN):
            raise BenchError(
                f"/{path} has {ours.get(path, 'no')} bytes in the layers and {theirs.get(path, 'no')} in the tree that"
                " uv installed: the ways would not be compared on the same content"
            )
    return len(ours), sum(ours.values())


def _read(path: Path) -> None:
    """Reads a file once, so that the first way does not pay for bringing it into memory."""
    with path.open("rb") as data:
        while data.read(1 << 22):
            pass
