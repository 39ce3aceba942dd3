"""Planted steps without switches, told apart by real builds of a copy of this tree."""

import datetime
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.manifest import model
from releases.changelog import grammar
from releases.cutting import draft, layout_record
from releases.tag import Tag
from tests import elsewhere
from tests.engine import synthetic
from tools.files import atomic
from tools.moet import main as program

PATCHES = "patches/vllm-0.33.0"
PLANTED = {21: "planted-first", 22: "planted-second", 23: "planted-third"}

PATCH = """Description: Add a file
Reason: cannot be upstreamed
Step: {name}
Switch: none
Forwarded: not-needed
Drop-When: the test is over
Last-Update: 2026-11-29

--- /dev/null
+++ b/vllm/{module}.py
@@ -0,0 +1 @@
+WHO = "{name}"
"""
STEP = """        step(
            number = {number},
            name = "{name}",
            patches = ["{name}.patch"],
            switch = None,
            default = "",
            numerics = "none",
            reason = "A test wants it.",
            evidence = "//images/dsv41:engine_test",
            drop_when = "the test is over",
        ),
    ],
)
"""


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", root, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def release(root: Path, number: int, steps: Sequence[model.Step], scratch: Path) -> None:
    """Commits the tree, and writes a release of that commit that has these steps; no image of it is built."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", f"r{number}")
    tag = Tag("dsv41", "vllm0.33.0", number)
    commit = git(root, "rev-parse", "HEAD")
    made = synthetic.make_moet_layout(scratch / str(number), str(tag), commit=commit, steps=steps)
    record = layout_record.read(made)
    atomic.write_folder(root / f"releases/records/dsv41/{tag.name}", record.files())
    text = (root / "CHANGELOG.md").read_text()
    entry = draft.entry(tag, datetime.date(2026, 11, 29), record, None, {})
    (root / "CHANGELOG.md").write_text(grammar.insert(text, entry, False))
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", f"Release r{number}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    elsewhere.copy_tree(Path("bazelw").resolve().parent, root)
    for record in sorted((root / "releases/records").glob("*/*/*")):
        record.unlink()
    git(tmp_path, "init", "--quiet", str(root))
    (root / "CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    own = [synthetic.step(1, "reasoning-effort-tiers")]
    release(root, 91, own, tmp_path)
    for number, name in PLANTED.items():
        (root / PATCHES / f"{name}.patch").write_text(PATCH.format(name=name, module=name.replace("-", "_")))
        with (root / PATCHES / "series").open("a") as series:
            series.write(f"{name}.patch\n")
        line = root / "images/dsv41/line.bzl"
        text = line.read_text()
        assert text.endswith("    ],\n)\n")
        line.write_text(text.removesuffix("    ],\n)\n") + STEP.format(number=number, name=name))
    planted = [synthetic.step(number, name, switch=None) for number, name in PLANTED.items()]
    release(root, 92, [*own, *planted], tmp_path)
    return root


def test_planted_step_is_found_by_real_builds(
    tree: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    ends = ["--good", "dsv41:vllm0.33.0-r91", "--bad", "dsv41:vllm0.33.0-r92", "--target", f"//{PATCHES}:overlay"]
    look = f"test -d $MOET_LAYOUT/vllm && test ! -e $MOET_LAYOUT/vllm/{PLANTED[22].replace('-', '_')}.py"
    status = program.main(["release", "bisect", "--json", "--tree", str(tree), *ends, "--", "sh", "-c", look])
    out, err = capfd.readouterr()
    assert status == 0, err
    found = json.loads(out)
    assert found["step"]["name"] == PLANTED[22]
    assert found["how"] == "rebuilt"
    verdicts = {tuple(one["off"]): one["verdict"] for one in found["trials"] if one["how"] == "rebuilt"}
    assert verdicts[PLANTED[22], PLANTED[23]] == "good"
    assert verdicts[PLANTED[23],] == "bad"
    assert git(tree, "status", "--porcelain") == ""
    assert len(git(tree, "worktree", "list").splitlines()) == 1
    beside = elsewhere.repository_cache().parent.parent
    assert [path for path in beside.glob("moet-release-*/*/tree/.git") if str(tree) in path.read_text()] == []
