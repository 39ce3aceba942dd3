"""moet release bisect, over a toy tree: real git, real images, a bazelw that makes them in no time."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from releases.testing.toy import Toy
from tools.moet import main as program

# Bad while a step of these names is in the image at MOET_LAYOUT and not switched off.
CHECK = """
import json, os, pathlib, sys
layout = pathlib.Path(os.environ["MOET_LAYOUT"])
read = lambda digest: (layout / "blobs" / digest.replace(":", "/")).read_bytes()
image = json.loads(read(json.loads((layout / "index.json").read_bytes())["manifests"][0]["digest"]))
import gzip, io, tarfile
tar = tarfile.open(fileobj=io.BytesIO(gzip.decompress(read(image["layers"][-1]["digest"]))))
manifest = json.load(tar.extractfile(next(name for name in tar.getnames() if name.endswith("manifest.json"))))
live = [s["name"] for s in manifest["steps"] if not s.get("switch") or os.environ.get(s["switch"], s["default"]) != "0"]
with open(os.environ["SEEN"], "a") as seen:
    print(" ".join(live), file=seen)
sys.exit(1 if set(sys.argv[1:]) & set(live) else 0)
"""
# Steps whose names say so have no switch, or one that does nothing.
KINDS = 'synthetic.step(one.number, one.name, switch=None if "fixed" in one.name else "VLLM_MOET_" + one.name.upper())'

Run = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Builds elsewhere lie beside the repository cache, which must not be the user's.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[dict[int, str], dict[int, str]], Path]:
    """A tree whose releases r1 and r2 have these steps."""

    def make(good: dict[int, str], bad: dict[int, str]) -> Path:
        toy = Toy(tmp_path / "tree")
        text = toy.read("bazelw")
        start = text.index("synthetic.step(")
        end = text.index("\n", start)
        toy.write("bazelw", text[:start] + KINDS + text[end:])
        for number, steps in ((1, good), (2, bad)):
            toy.line(number, steps)
            names = list(steps.values())
            for path in (toy.root / "patches").glob("*/*"):
                path.unlink()
            toy.write("patches/vllm-0.33.0/series", "".join(f"{name}.patch\n" for name in names))
            for name in names:
                toy.write(f"patches/vllm-0.33.0/{name}.patch", f"patch of {name}")
            toy.commit(f"r{number}")
            toy.release()
        return toy.root

    return make


@pytest.fixture
def bisect(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(root: Path, *words: str, command: tuple[str, ...] = (), status: int = 0) -> dict[str, Any]:
        ends = ["--good", "toy:vllm0.33.0-r1", "--bad", "toy:vllm0.33.0-r2"]
        given = ["release", "bisect", "--json", "--tree", str(root), "--no-load", *ends, *words, "--"]
        done = program.main([*given, *(command or (sys.executable, "-c", CHECK, "culprit", "culprit-fixed"))])
        out, err = capfd.readouterr()
        assert done == status, err
        return dict(json.loads(out))

    return run


def trials(found: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    return [(one["how"], one["off"], one["verdict"]) for one in found["trials"]]


def left_behind(tmp_path: Path) -> list[str]:
    return [str(path) for path in (tmp_path / "home").rglob("moet-*-*")]


def test_step_with_a_switch_is_found_without_a_build(
    tree: Callable[..., Path], bisect: Run, tmp_path: Path
) -> None:
    names = {1: "a", 2: "b", 3: "c", 4: "culprit", 5: "d", 6: "e"}
    root = tree({1: "a"}, names)
    found = bisect(root)
    assert found["step"]["name"] == "culprit"
    assert found["how"] == "switches"
    assert {one["how"] for one in found["trials"]} == {"good image", "switches"}
    assert len(found["trials"]) <= 2 + 1 + 3 + 2
    assert found["trials"][-2:] == [
        {**found["trials"][-2], "again": True, "verdict": "good", "steps": [1, 2, 3]},
        {**found["trials"][-1], "again": True, "verdict": "bad", "steps": [1, 2, 3, 4]},
    ]
    assert left_behind(tmp_path) == []


def test_step_without_a_switch_is_found_by_builds(tree: Callable[..., Path], bisect: Run, tmp_path: Path) -> None:
    names = {1: "a", 2: "b-fixed", 3: "culprit-fixed", 4: "c-fixed", 5: "d"}
    root = tree({1: "a"}, names)
    before = subprocess.run(["git", "-C", root, "status", "--porcelain"], capture_output=True).stdout
    found = bisect(root)
    assert found["step"]["name"] == "culprit-fixed"
    assert found["how"] == "rebuilt"
    seen = (tmp_path / "seen").read_text().splitlines()
    assert "a b-fixed" in seen
    assert "a b-fixed culprit-fixed" in seen
    assert left_behind(tmp_path) == []
    assert subprocess.run(["git", "-C", root, "status", "--porcelain"], capture_output=True).stdout == before
    assert len(subprocess.run(["git", "-C", root, "worktree", "list"], capture_output=True).stdout.splitlines()) == 1


def test_switch_that_does_not_switch_off_is_found_by_builds(
    tree: Callable[..., Path], bisect: Run
) -> None:
    root = tree({1: "a"}, {1: "a", 2: "b", 3: "culprit", 4: "c"})
    command = (sys.executable, "-c", CHECK.replace('not s.get("switch")', "True"), "culprit")
    found = bisect(root, command=command)
    assert found["step"]["name"] == "culprit"
    assert found["how"] == "rebuilt"
    assert ("switches", ["VLLM_MOET_B", "VLLM_MOET_CULPRIT", "VLLM_MOET_C"], "bad") in trials(found)


def test_difference_outside_the_steps(tree: Callable[..., Path], bisect: Run) -> None:
    root = tree({1: "a"}, {1: "a", 2: "b"})
    found = bisect(root, command=("sh", "-c", 'case "$MOET_IMAGE" in *-r1) exit 0;; esac; exit 1'), status=3)
    assert found["step"] is None
    assert trials(found)[-1] == ("rebuilt", ["VLLM_MOET_B"], "bad")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "--good toy:vllm0.33.0-r1: COMMAND says bad (exit status 1), good was expected"),
        ("exit 0", "--bad toy:vllm0.33.0-r2: COMMAND says good (exit status 0), bad was expected"),
        ("exit 125", "--good toy:vllm0.33.0-r1: COMMAND says cannot tell (exit status 125)"),
        ("exit 127", "COMMAND sh: exit status 127"),
    ],
)
def test_ends_that_are_not_what_they_are_said_to_be(
    script: str, said: str, tree: Callable[..., Path], bisect: Run
) -> None:
    found = bisect(tree({1: "a"}, {1: "a", 2: "b"}), command=("sh", "-c", script), status=1)
    assert found["schema"] == "moet.error.v1"
    assert said in found["error"]


def test_steps_that_cannot_be_told_apart(tree: Callable[..., Path], bisect: Run) -> None:
    root = tree({1: "a"}, {1: "a", 2: "b", 3: "culprit", 4: "c"})
    script = 'case "$MOET_STEPS" in "1 2"|"1 2 3") exit 125;; "1 2 3 4") exit 1;; esac'
    found = bisect(root, command=("sh", "-c", script), status=4)
    assert [one["name"] for one in found["suspects"]] == ["b", "culprit", "c"]


def test_unsteady_command_is_not_believed(tree: Callable[..., Path], bisect: Run, tmp_path: Path) -> None:
    root = tree({1: "a"}, {1: "a", 2: "b", 3: "culprit"})
    # Good of state 1 the first time, bad the second.
    once = f"test ! -e {tmp_path}/x; s=$?; touch {tmp_path}/x; exit $s"
    script = f'case "$MOET_STEPS" in "1 2") {once};; *3) exit 1;; esac'
    found = bisect(root, command=("sh", "-c", script), status=4)
    assert found["step"] is None
    assert found["steady"] is False


def test_goes_on_where_it_was_stopped(tree: Callable[..., Path], bisect: Run, tmp_path: Path) -> None:
    root = tree({1: "a"}, {1: "a", 2: "b", 3: "culprit", 4: "c", 5: "d"})
    log = tmp_path / "log"
    stop = f"""import os, sys
if os.path.exists({str(tmp_path / "go")!r}): exec({CHECK!r})
runs = open({str(tmp_path / "runs")!r}, "a+"); runs.write("x"); runs.flush(); runs.seek(0)
if len(runs.read()) == 4: os.kill(os.getpid(), 9)
exec({CHECK!r})
"""
    command = (sys.executable, "-c", stop, "culprit")
    stopped = bisect(root, "--log", str(log), command=command, status=1)
    assert "was ended by signal 9" in stopped["error"]
    (tmp_path / "go").touch()
    (tmp_path / "seen").unlink()
    found = bisect(root, "--log", str(log), command=command)
    assert found["step"]["name"] == "culprit"
    assert [one["from_log"] for one in found["trials"]][:4] == [True, True, True, False]
    assert len((tmp_path / "seen").read_text().splitlines()) == len(found["trials"]) - 3
    again = bisect(root, "--log", str(log), command=command)
    assert all(one["from_log"] for one in again["trials"])
    refused = bisect(root, "--log", str(log), command=("true",), status=1)
    assert "is of another bisect (command was" in refused["error"]


def test_step_that_is_off_by_default_is_tried_where_the_environment_sets_it(
    tree: Callable[..., Path], bisect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({1: "a"}, {1: "a", 2: "culprit", 3: "b"})
    script = '[ "$VLLM_MOET_CULPRIT" != 64 ]'
    monkeypatch.setenv("VLLM_MOET_CULPRIT", "64")
    command = ("sh", "-c", f'{script} || case "$MOET_IMAGE" in *-r1) exit 0;; *) exit 1;; esac')
    found = bisect(root, command=command)
    assert found["step"]["name"] == "culprit"
    assert os.environ["VLLM_MOET_CULPRIT"] == "64"


def test_other_line_and_unknown_release(tree: Callable[..., Path], bisect: Run) -> None:
    root = tree({1: "a"}, {1: "a", 2: "b"})
    assert "are of two lines" in bisect(root, "--good", "other:vllm0.33.0-r1", status=1)["error"]
    assert "no release in CHANGELOG.md" in bisect(root, "--good", "toy:vllm0.33.0-r9", status=1)["error"]
    assert "--repeat 0" in bisect(root, "--repeat", "0", status=1)["error"]
