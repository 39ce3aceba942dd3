"""A small source tree with two releases of one line, their images, and the command that goes from one to the other."""

import contextlib
import datetime
import gzip
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from images.engine import layout
from images.engine.layout import Image
from images.manifest import model
from releases.changelog import grammar
from releases.changelog.entry import Bullet, Changelog, Entry
from releases.record import Record
from releases.tag import Tag
from tests.engine.synthetic import STEPS, make_moet_layout
from tools.moet import main

LINE = "toy"
R0 = f"{LINE}:vllm0.33.0-r0"
R1 = f"{LINE}:vllm0.33.0-r1"

# Stands in for Bazel: the images of a commit were made beforehand.
_BAZELW = """#!/bin/sh
case "$*" in
*--output_base=*shutdown*) ;;
*info*bazel-bin*) echo "$(git config toy.made)/$(git rev-parse HEAD)" ;;
*build*) ls "$(git config toy.made)/$(git rev-parse HEAD)" >&2 ;;
esac
"""
# Whoever makes the tree, its commits and so its images are the same.
_WHO = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (
    ("NAME", "Toy"), ("EMAIL", "toy@toy.invalid"), ("DATE", "2026-01-31T12:00:00Z"),
)}


@dataclass(frozen=True)
class Toy:
    """The tree at `root`; the images are below `made`."""

    root: Path
    made: Path

    @property
    def changelog(self) -> Changelog:
        """Its CHANGELOG.md."""
        return grammar.parse((self.root / "CHANGELOG.md").read_text())

    def entry(self, tag: str) -> Entry:
        """The entry of a release."""
        return next(entry for entry in self.changelog.entries if str(entry.tag) == tag)

    def image(self, tag: str) -> Image:
        """A release's image, as a layout."""
        name = LINE if Tag.parse(tag).number else f"{LINE}.base"
        return layout.read(self.made / self.entry(tag).commit / "images" / LINE / name)

    def rewrite(self, tag: str, **changes: Any) -> None:
        """Changes an entry of the CHANGELOG and commits nothing."""
        old = self.changelog
        entries = tuple(replace(one, **changes) if str(one.tag) == tag else one for one in old.entries)
        (self.root / "CHANGELOG.md").write_text(grammar.render(replace(old, entries=entries)))

    def rebuild_is_gone(self) -> None:
        """Takes away what builds would make."""
        self.made.rename(self.made.with_name("away"))


def make_toy(
    folder: Path,
    make: Callable[..., Path] = make_moet_layout,
    steps: Sequence[model.Step] = STEPS,
    files: Mapping[str, str] | None = None,
) -> Toy:
    """Makes the tree below `folder`, with r0 (no steps) and r1 (`steps`), each built from a commit of its own.

    `make` makes the images, as make_moet_layout does; `files` are more files of the tree, path to text.
    """
    toy = Toy(folder / "tree", folder / "made")
    (toy.root / "images").mkdir(parents=True)
    (toy.root / "images/BUILD.bazel").touch()
    (toy.root / "bazelw").write_text(_BAZELW)
    (toy.root / "bazelw").chmod(0o755)
    (toy.root / "CHANGELOG.md").write_text(grammar.render(Changelog("What is released.", {}, ())))
    for path, text in (files or {}).items():
        (toy.root / path).parent.mkdir(parents=True, exist_ok=True)
        (toy.root / path).write_text(text)
    _git(toy, "init", "--quiet", "--initial-branch=main")
    for name, value in {"toy.made": str(toy.made), "user.name": "Toy", "user.email": "toy@toy.invalid"}.items():
        _git(toy, "config", name, value)
    _release(toy, R0, (), make)
    (toy.root / "images/steps").write_text("two\n")
    _release(toy, R1, steps, make)
    return toy


def manifest_of(image: Image) -> bytes:
    """The bytes of Moet's manifest in an image of make_moet_layout."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(image.layers[-1].blob.path.read_bytes()))) as tar:
        stream = tar.extractfile(model.PATH[1:])
        assert stream
        return stream.read()


def moet(*arguments: str) -> tuple[int, str, str]:
    """Runs moet in this process; returns its status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main(list(arguments))
    return status, out.getvalue(), err.getvalue()


def document(*arguments: str) -> dict[str, Any]:
    """Runs moet with --json, which must go well; returns what it printed."""
    status, out, err = moet(*arguments, "--json")
    assert status == 0, err
    value: dict[str, Any] = json.loads(out)
    return value


def _release(toy: Toy, text: str, steps: Sequence[model.Step], make: Callable[..., Path]) -> None:
    commit = _commit(toy, f"what {text} is built from")
    tag = Tag.parse(text)
    place = toy.made / commit / "images" / LINE / (LINE if tag.number else f"{LINE}.base")
    place.parent.mkdir(parents=True)
    image = layout.read(make(place, text, commit=commit, steps=steps))
    record = Record(image.manifest.path.read_bytes(), image.config.path.read_bytes(), manifest_of(image))
    for name, data in record.files().items():
        path = toy.root / "releases/records" / LINE / tag.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    previous = Tag(tag.line, tag.base, tag.number - 1) if tag.number else None
    entry = Entry(
        tag=tag,
        date=datetime.date(2026, 1, 31),
        summary="A toy.",
        digest=image.manifest.digest,
        image_id=image.config.digest,
        commit=commit,
        base="vllm 0.33.0 4ba787ec9",
        steps=tuple((step.number, step.name) for step in steps),
        follows=previous,
        rollback=previous,
        rollback_switches=tuple((step.switch, "0") for step in steps if step.switch and step.default != "0"),
        sections={"Added": (Bullet("All of it."),)},
    )
    old = toy.changelog
    (toy.root / "CHANGELOG.md").write_text(grammar.render(replace(old, entries=(entry, *old.entries))))
    _commit(toy, f"Release {text}")


def _commit(toy: Toy, message: str) -> str:
    _git(toy, "add", "--all")
    _git(toy, "commit", "--quiet", "--no-gpg-sign", "--message", message)
    return _git(toy, "rev-parse", "HEAD")


def _git(toy: Toy, *arguments: str) -> str:
    command = ["git", "-C", str(toy.root), *arguments]
    done = subprocess.run(command, env={**os.environ, **_WHO}, capture_output=True, text=True, check=True)
    return done.stdout.strip()
