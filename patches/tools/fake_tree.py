"""A small source tree of Moet's for tests: one line, one series, one locked wheel."""

import hashlib
from pathlib import Path

from patches.engine.fake_series import make_patch, make_series
from patches.engine.fake_wheel import make_wheel

ENVS = b"""import os

A: int = 1
B: int = 2
C: int = 3
D: int = 4

environment_variables = {
    "A": lambda: int(os.getenv("A", "1")),
    "B": lambda: int(os.getenv("B", "2")),
    "C": lambda: int(os.getenv("C", "3")),
    "D": lambda: int(os.getenv("D", "4")),
}
"""
LINES = b"".join(b"number_%d = compute(%d)\n" % (number, number) for number in range(1, 41))
FILES = {"demo/envs.py": ENVS, "demo/x.py": LINES, "demo/y.py": LINES.replace(b"number", b"letter")}


def registered(envs: bytes, switch: str, after: str) -> bytes:
    """envs.py with a switch registered behind variable `after`."""
    name, key = switch.encode(), after.encode()
    lines = envs.splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if line.startswith(key + b":"))
    lines.insert(at + 1, name + b": bool = True\n")
    at = next(index for index, line in enumerate(lines) if line.startswith(b'    "' + key + b'"'))
    lines.insert(at + 1, b'    "' + name + b'": lambda: bool(int(os.getenv("' + name + b'", "1"))),\n')
    return b"".join(lines)


def replaced(data: bytes, *numbers: int, by: str = "other") -> bytes:
    """A file of numbered lines with some of them changed."""
    for number in numbers:
        old = data.split(b" = compute(%d)\n" % number)[0].rsplit(b"\n", 1)[-1]
        data = data.replace(
            b"%s = compute(%d)\n" % (old, number), b"%s = %s(%d)\n" % (old, by.encode(), number)
        )
    return data


def patches() -> dict[str, bytes]:
    """Two patches: `first` registers VLLM_MOET_FIRST and changes x.py, `second` changes x.py and y.py."""
    first = registered(ENVS, "VLLM_MOET_FIRST", "A")
    x = replaced(LINES, 5)
    return {
        "first.patch": make_patch(
            "first", ("demo/envs.py", ENVS, first), ("demo/x.py", LINES, x), step="first", switch="VLLM_MOET_FIRST"
        ),
        "second.patch": make_patch(
            "second",
            ("demo/x.py", x, replaced(x, 30)),
            ("demo/y.py", FILES["demo/y.py"], replaced(FILES["demo/y.py"], 20)),
            step="second",
        ),
    }


def make_tree(
    folder: Path, series: dict[str, bytes] | None = None, steps: dict[str, tuple[list[str], str]] | None = None
) -> Path:
    """Writes the tree, and its pinned wheel demo 1.0 where the tree's Bazel would have it. Returns its folder.

    `steps` are name to patches and switch, numbered in order; by default each patch has the step of its name.
    """
    root = folder / "tree"
    (root / "patches").mkdir(parents=True)
    series = patches() if series is None else series
    place = make_series(root / "patches", series)
    (place / "BUILD.bazel").write_text(
        'patch_overlay(\n    name = "overlay",\n    wheel = "@pypi_line_demo//:file",\n)\n'
    )
    (place / "tests").mkdir()
    for name in series:
        (place / "tests" / f"test_{name.removesuffix('.patch').replace('-', '_')}.py").write_text("")
    external = folder / "base/external/pypi_line_demo"
    external.mkdir(parents=True)
    wheel = make_wheel(external, FILES)
    (folder / "base/execroot/moet/bazel-out").mkdir(parents=True)
    (root / "bazel-out").symlink_to(folder / "base/execroot/moet/bazel-out")
    lock = {
        "version": "1.0",
        "file": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "size": wheel.stat().st_size,
        "requires": [],
    }
    _write(root / "third_party/python/line.lock.bzl", f'"""Made."""\n\nWHEELS = {{"demo": {lock!r}}}\n')
    if steps is None:
        switches = {"first": "VLLM_MOET_FIRST"}
        steps = {name[:-6]: ([name], switches.get(name[:-6], "none")) for name in series}
    _write(
        root / "images/line/line.bzl",
        "LINE = line(\n    name = NAME,\n    steps = [\n"
        + "".join(_step(number, name, *step) for number, (name, step) in enumerate(steps.items(), 1))
        + "    ],\n)\n",
    )
    _write(
        root / "images/line/BUILD.bazel",
        'serving_image(\n    name = "line",\n    overlay = "//patches/demo-1.0:overlay",\n)\n',
    )
    _write(root / "CHANGELOG.md", "# Changelog\n")
    _write(root / "bazelw", "")
    return root


def _step(number: int, name: str, names: list[str], switch: str) -> str:
    given = None if switch == "none" else switch
    return (
        f"        step(\n            number = {number},\n            name = {name!r},\n"
        f"            patches = {names!r},\n            switch = {given!r},\n            default = '1',\n"
        "            drop_when = 'upstream does it',\n"
        "        ),\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
