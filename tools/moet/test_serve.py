import json
import os
import shlex
from pathlib import Path

import pytest

from tools.moet import main as program

IMAGE = "IMAGE=dsv41:vllm0.33.0-r2-dev"
MODEL = "MODEL_DIR=/models/a b"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree with no release, and an environment without knobs."""
    (tmp_path / "images").mkdir()
    (tmp_path / "bazelw").touch()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    for name in ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(*words: str, status: int = 0) -> None:
    assert program.main(["serve", *words]) == status


def test_command_can_be_copied_and_the_table_says_where_values_are_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_NUM_SEQS", "16")
    run("print", "dsv41", "--set", MODEL, "--set", IMAGE)
    command, _, table = capsys.readouterr().out.partition("\n\n")
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:2] == ["docker", "run"] and "--max-num-seqs=16" in words
    assert "--mount=type=bind,source=/models/a b,target=/model,readonly" in words
    (row,) = [line for line in table.splitlines() if line.split()[:1] == ["MAX_NUM_SEQS"]]
    assert row.split()[1:4] == ["16", "environment", "--max-num-seqs=16"]


def test_documents_say_what_the_lines_say(capsys: pytest.CaptureFixture[str]) -> None:
    run("print", "dsv41", "--set", MODEL, "--set", IMAGE, "--json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == "moet.serve-print.v1"
    assert printed["command"][:2] == ["docker", "run"]
    run("knobs", "dsv41", "--json")
    knobs = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in knobs["knobs"]] == [one["name"] for one in printed["knobs"]]
    run("render", "dsv41", "--form", "docker", "--set", MODEL, "--set", IMAGE, "--json")
    (file,) = json.loads(capsys.readouterr().out)["files"]
    script = shlex.split(file["text"].partition("exec ")[2].replace("\\\n", ""))
    assert script == printed["command"]


def test_rendered_text_is_byte_for_byte(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["--set", IMAGE, "--set", MODEL, "--set", f"SERVED_MODEL_NAME=[bold]\t{'x' * 400}[/bold]"]
    run("render", "dsv41", "--form", "docker", *given)
    shown = capsys.readouterr().out
    run("render", "dsv41", "--form", "docker", *given, "--out", str(tmp_path / "out"))
    file = tmp_path / "out/dsv41.sh"
    assert file.read_text() == shown and "[bold]\t" in shown
    assert os.access(file, os.X_OK)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["print", "dsv41", "--set", IMAGE], "MODEL_DIR is not set: expected an absolute path"),
        (["print", "dsv41", "--set", MODEL], "dsv41 has no release: set IMAGE"),
        (["print", "dsv41", "--set", "TPP=4"], "did you mean TP?"),
        (["knobs", "dsv42"], "'dsv42' is no profile; did you mean dsv41?"),
        (
            ["render", "dsv41", "--form=docker", "--nodes=2", "--master-addr=a", "--set", MODEL, "--set", IMAGE],
            "2 files, one a host: say where to with --out DIR",
        ),
    ],
)
def test_wrong_request_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(*words, status=1)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith(f"moet serve {words[0]}: ") and said in captured.err


def test_key_is_in_nothing_that_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "very-secret")
    for words in (["print", "dsv41"], ["print", "dsv41", "--json"], ["render", "dsv41", "--form", "compose"]):
        run(*words, "--set", MODEL, "--set", IMAGE, "--set", "BIND=0.0.0.0")
        captured = capsys.readouterr()
        assert "VLLM_API_KEY" in captured.out
        assert "very-secret" not in captured.out + captured.err
