"""The benchmark's content: which wheels go into which layers, and with which programs (see plan.bzl)."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.programs import BenchError


@dataclass(frozen=True)
class WheelLayer:
    """One layer of wheels, as Bazel's action has it; `drop` are globs of paths that are not installed."""

    name: str
    comment: str
    mtime: int
    drop: tuple[str, ...]
    wheels: tuple[Path, ...]

    @property
    def unpacked(self) -> int:
        """Bytes of the wheels' files, dropped ones included."""
        total = 0
        for wheel in self.wheels:
            with zipfile.ZipFile(wheel) as archive:
                total += sum(member.file_size for member in archive.infolist())
        return total


@dataclass(frozen=True)
class Plan:
    """An image's wheel layers, the programs that write layers and image, and the image's labels and paths.

    `layout` is relative to bazel-bin, `patches` to the workspace.
    """

    image: str
    loader: str
    layout: Path
    patches: Path
    wheel_layer: Path
    assemble: Path
    layers: tuple[WheelLayer, ...]

    @property
    def wheels(self) -> list[Path]:
        """Every wheel of the plan's layers."""
        return [wheel for layer in self.layers for wheel in layer.wheels]

    def only(self, names: Sequence[str]) -> "Plan":
        """The plan of these layers alone, in the image's order.

        Raises:
            BenchError: the image has no such layer; says which it has.
        """
        have = [layer.name for layer in self.layers]
        for name in names:
            if name not in have:
                raise BenchError(f"the image has no layer of wheels called {name}; it has {', '.join(have)}")
        return replace(self, layers=tuple(layer for layer in self.layers if layer.name in names))


def read(path: Path) -> Plan:
    """Read what bench_plan wrote; its paths are relative to the working folder, the runfiles of `bazel run`."""
    value = json.loads(path.read_text())
    layers = tuple(
        WheelLayer(
            layer["name"],
            layer["comment"],
            layer["mtime"],
            tuple(layer["drop"]),
            tuple(Path(wheel).resolve() for wheel in layer["wheels"]),
        )
        for layer in value["layers"]
    )
    return Plan(
        image=value["image"],
        loader=value["loader"],
        layout=Path(value["layout"]),
        patches=Path(value["patches"]),
        # Not resolved: a Python binary finds its runfiles by the path that it is started with.
        wheel_layer=Path(value["tools"]["wheel_layer"]).absolute(),
        assemble=Path(value["tools"]["assemble"]).absolute(),
        layers=layers,
    )
