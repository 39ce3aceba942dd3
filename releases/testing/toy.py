"""A source tree like Moet's, small enough for tests: real git, real images, and a bazelw that makes them in no time."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self

from releases.changelog import grammar
from releases.changelog.entry import Changelog
from releases.cutting import cut
from releases.cutting.cut import Cut
from releases.cutting.draft import TODO
from releases.receipts.receipt import SCHEMA
from releases.tag import Tag

UPSTREAM = "4ba787ec9"
R0 = Tag("toy", "vllm0.33.0", 0)
R1 = Tag("toy", "vllm0.33.0", 1)
R2 = Tag("toy", "vllm0.33.0", 2)

_BAZELW = """#!{python}
import os, pathlib, subprocess, sys
sys.path[:] = {path!r}
from images.manifest import model
from releases.tree import line_data
from tests.engine import synthetic

root = pathlib.Path(__file__).resolve().parent
startup = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if word.startswith("--out"))
command, *rest = [word for word in sys.argv[1:] if not word.startswith("--")]
out = pathlib.Path(startup.get("output_base", root / "bazel-toy")) / "bin"
if command == "info":
    print(out)
elif command == "build":
    release = "--config=release" in sys.argv
    git = lambda *words: subprocess.run(["git", "-C", root, *words], capture_output=True, text=True).stdout.strip()
    if os.environ.get("TOY_FAILS") or release and git("status", "--porcelain"):
        sys.exit("toy: the build failed")
    read = lambda path: (root / path).read_bytes() if (root / path).is_file() else None
    for label in rest:
        line, _, name = label.removeprefix("//images/").partition(":")
        data = line_data.read(read, line)
        base = name.endswith(".base")
        tag = str(data.tag(0 if base else None)) + ("" if release else "-dev")
        steps = [] if base else [synthetic.step(one.number, one.name, default="0" if one.number == 2 else "1")
                                 for one in data.steps]
        patches = {{path.name: path.read_text() for path in (root / "patches").glob("*.patch")}}
        files = {{"etc/salt": os.environ.get("TOY_SALT", "none").encode(), "etc/os-release": b"toy"}}
        pins = dict(pair.split(" ") for pair in (root / "pins.txt").read_text().splitlines())
        folder = out / "images" / line / name
        subprocess.run(["rm", "-rf", folder])
        folder.parent.mkdir(parents=True, exist_ok=True)
        layers = {{"rootfs": files, "vllm": {{"vllm/__init__.py": b""}}}}
        head = git("rev-parse", "HEAD")
        synthetic.make_moet_layout(folder, tag, commit=head, steps=steps, patches=patches, pins=pins, layers=layers)
"""

_LINE = """load("//images:line.bzl", "line", "step")
load("//third_party/vllm:pin.bzl", "VLLM")

TOY = line(
    name = "toy",
    base = VLLM,
    release = {release},
    steps = [
{steps}    ],
)
"""

_STEP = """        step(
            number = {number},
            name = "{name}",
            evidence = "//images/toy:engine_test",
        ),
"""


class Toy:
    """The tree at `root`, with one commit: line toy, base vllm 0.33.0, steps 1 tiers and 2 next."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("bazelw", _BAZELW.format(python=sys.executable, path=[os.path.abspath(entry) for entry in sys.path]))
        (root / "bazelw").chmod(0o755)
        self.write(".gitignore", "/bazel-*\n__pycache__/\n")
        self.write("images/toy/BUILD.bazel", 'pytest_test(name = "engine_test")\n')
        self.write("pins.txt", "torch 2.14.0\n")
        self.write("CHANGELOG.md", "# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
        self.base("0.33.0")
        self.line(1, {1: "tiers", 2: "next"})
        self.commit("A toy")

    @classmethod
    def copied(cls, source: Path, root: Path) -> Self:
        """A copy, at `root`, of the tree at `source`."""
        shutil.copytree(source, root, symlinks=True)
        made = cls.__new__(cls)
        made.root = root
        return made

    def git(self, *arguments: str) -> str:
        """Runs git in the tree, as somebody; returns its stdout."""
        who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(self.root), *who, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Writes a file of the tree."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def read(self, path: str) -> str:
        """A file of the tree."""
        return (self.root / path).read_text()

    def edit(self, path: str, old: str, new: str) -> None:
        """Replaces the first `old` in a file, which must be there."""
        text = self.read(path)
        assert old in text, f"{path} has no {old!r}"
        self.write(path, text.replace(old, new, 1))

    def base(self, version: str) -> None:
        """Sets the version of the base."""
        pin = f'VLLM = struct(name = "vllm", version = "{version}", commit = "{UPSTREAM}")\n'
        self.write("third_party/vllm/pin.bzl", f'"""vLLM."""\n\n{pin}')

    def line(self, release: int, steps: Mapping[int, str]) -> None:
        """Writes the line's data."""
        written = "".join(_STEP.format(number=number, name=name) for number, name in steps.items())
        self.write("images/toy/line.bzl", _LINE.format(release=release, steps=written))

    def commit(self, message: str) -> str:
        """Commits everything; returns the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def cut(self, base: bool = False, note: Callable[[str], None] = lambda _: None) -> Cut:
        """Cuts the next release of toy."""
        return cut.cut(self.root, "toy", base=base, doing=silent, note=note)

    @property
    def changelog(self) -> Changelog:
        """CHANGELOG.md, read."""
        return grammar.parse(self.read("CHANGELOG.md"))

    def receipt(self, path: str, digest: str, output: object, **more: object) -> None:
        """Writes a receipt; `more` replaces fields."""
        document = {
            "schema": SCHEMA,
            "subject": {"tag": None, "digest": digest},
            "hardware": {"cpu": "a cpu", "cores": 2, "memory": 1 << 30, "gpus": []},
            "software": {"kernel": "Linux 6", "python": "3.11.2"},
            "command": ["true"],
            "exit": 0,
            "output": output,
            "commit": "0" * 40,
            "modified": [],
            "date": "2026-11-29T12:00:00Z",
            **more,
        }
        self.write(path, json.dumps(document))

    def settle(self) -> None:
        """Writes what a person would for the newest release: words for each TODO, and evidence with a receipt."""
        entry = self.changelog.entries[0]
        path = f"docs/evidence/{entry.tag.line}-{entry.tag.name}/test.json"
        self.receipt(path, entry.digest, "94 passed in 1.6 s")
        lines = self.read("CHANGELOG.md").split("\n")
        for index, line in enumerate(lines):
            if TODO in line:
                start = line[: line.index(TODO)]
                evidence = start == "- "
                lines[index] = f"- 94 tests pass ([receipt]({path}))." if evidence else f"{start}it does a thing."
        self.write("CHANGELOG.md", "\n".join(lines))

    def release(self, base: bool = False) -> Cut:
        """Cuts, settles and commits."""
        done = self.cut(base)
        self.settle()
        self.commit(f"Release {done.entry.tag}")
        return done


def silent(_: str) -> AbstractContextManager[None]:
    """Shows nothing of what goes on."""
    return nullcontext()
