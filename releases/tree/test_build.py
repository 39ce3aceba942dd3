import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from images.engine import layout
from releases.receipts import in_commit
from releases.tag import Tag
from releases.testing.toy import R0, R1, Toy
from releases.tree import build
from releases.tree.git import Git, GitError
from tools.cli.errors import UserError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def left(home: Path) -> list[Path]:
    return list(home.rglob("moet-release-*"))


def test_targets() -> None:
    assert build.target(R1) == "//images/toy:toy"
    assert build.target(R0) == "//images/toy:toy.base"
    assert build.target(Tag.parse("k31_b300:vllm0.33.0-r10")) == "//images/k31_b300:k31_b300"


def test_without_release_it_is_not_stamped(fresh: Toy) -> None:
    fresh.write("a-change", "")
    assert layout.read(build.built(fresh.root, R1, release=False)).ref_name == "vllm0.33.0-r1-dev"


def test_what_fails_is_said_in_one_line(
    fresh: Toy, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOY_FAILS", "1")
    with pytest.raises(build.BuildError) as caught:
        build.built(fresh.root, R1)
    assert str(caught.value) == "bazel build --config=release //images/toy:toy failed with exit status 1, see above"
    assert "toy: the build failed" in capfd.readouterr().err


def test_a_folder_without_bazelw(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match=r"is .* Moet's source tree"):
        build.built(tmp_path, R1)


def test_what_bazel_run_hands_down_stays_outside(fresh: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", "/nowhere")
    monkeypatch.setenv("TEST_TMPDIR", "/nowhere")
    fresh.write("bazelw", "#!/bin/sh\nenv\n")
    assert "/nowhere" not in build.run(fresh.root, ["info"])


def test_elsewhere_is_of_the_commit_and_goes(toy: Toy, home: Path) -> None:
    entry = toy.changelog.entries[0]
    toy.write("uncommitted", "")
    toy.edit("bazelw", "if command ==", "sys.exit(9)\nif command ==")
    with build.elsewhere(Git(toy.root), entry.commit) as workspace:
        digest = layout.read(workspace.built(R1)).manifest.digest
        assert workspace.output_base.is_relative_to(home)
        assert len(left(home)) == 1
    assert digest == entry.digest
    assert left(home) == []
    assert toy.git("worktree", "list").count("\n") == 0


def test_elsewhere_goes_when_the_build_fails(toy: Toy, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FAILS", "1")
    with pytest.raises(build.BuildError), build.elsewhere(Git(toy.root), "HEAD") as workspace:
        workspace.built(R1)
    assert left(home) == []


def test_elsewhere_of_a_commit_that_is_not_here(toy: Toy, home: Path) -> None:
    with pytest.raises(GitError), build.elsewhere(Git(toy.root), "0" * 40):
        pass
    assert left(home) == []


_STAY = """
import sys, time
sys.path[:] = sys.argv[2].split(":")
from pathlib import Path
from releases.tree import build
from releases.tree.git import Git
with build.elsewhere(Git(Path(sys.argv[1])), "HEAD") as workspace:
    (workspace.root.parent / "output").mkdir()
    (workspace.root.parent / "output/locked").mkdir(mode=0o555)
    print("there", flush=True)
    time.sleep(600)
"""


def stay(toy: Toy) -> "subprocess.Popen[str]":
    path = ":".join(os.path.abspath(entry) for entry in sys.path)
    running = subprocess.Popen(
        [sys.executable, "-c", _STAY, str(toy.root), path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout
    assert running.stdout.readline() == "there\n"
    return running


def test_elsewhere_goes_on_sigterm(toy: Toy, home: Path) -> None:
    running = stay(toy)
    assert len(left(home)) == 1
    running.send_signal(signal.SIGTERM)
    running.wait()
    assert left(home) == []


def test_what_a_killed_one_left_goes_with_the_next_and_a_live_one_stays(toy: Toy, home: Path) -> None:
    killed, living = stay(toy), stay(toy)
    try:
        killed.kill()
        killed.wait()
        assert len(left(home)) == 2
        with build.elsewhere(Git(toy.root), "HEAD") as workspace:
            assert len(left(home)) == 2
            assert workspace.output_base.parent in left(home)
        assert len(left(home)) == 1
    finally:
        living.terminate()
        living.wait()
    assert left(home) == []


def test_in_commit_bazel_has_its_own_output_base(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bazel").write_text('#!/bin/sh\necho "real $*"\n')
    (programs / "bazel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    entry = toy.changelog.entries[0]
    with in_commit.place(Git(toy.root), entry.commit) as place:
        environment = {**os.environ, **place.environment}

        def run(*command: str) -> str:
            return subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, text=True).stdout

        assert Git(place.folder).head() == entry.commit
        assert run("sh", "-c", "bazel test '//a b'").startswith("real --output_base=")
        assert run("sh", "-c", "bazel test '//a b'").endswith(" test //a b\n")
        assert run("bazel", "--version") == "real --version\n"
    assert not place.folder.exists()


def test_in_commit_without_bazel(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAZEL", "no-such-bazel")
    with pytest.raises(UserError, match="bazel is not on PATH"), in_commit.place(Git(toy.root), "HEAD"):
        pass
