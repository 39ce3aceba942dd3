import os
import subprocess
from pathlib import Path

import pytest

from serving.launch import docker_command
from serving.render import examples, form


@pytest.fixture
def called(tmp_path: Path) -> Path:
    """A folder with a `docker` that writes its arguments to the file `words`, a NUL after each."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nprintf "%s\\0" docker "$@" >{tmp_path}/words\n')
    program.chmod(0o755)
    return tmp_path


def run(script: str, folder: Path, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    given = {"PATH": f"{folder}:{os.defpath}", "HOME": "/nowhere", **(environment or {})}
    return subprocess.run(["sh", "-c", script], env=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("given", [examples.PLAIN, examples.HOSTILE])
def test_a_shell_gives_docker_the_very_words(given: tuple[str, ...], called: Path) -> None:
    (script,) = examples.render("docker", *given)
    done = run(script, called)
    assert done.returncode == 0, done.stderr
    words = (called / "words").read_text().split("\0")[:-1]
    assert words == docker_command.run(examples.launch(*given), "--detach")
    assert words[words.index(examples.IMAGE) + 1 :][:2] == ["serve", "/model"]


def test_key_of_the_environment_is_asked_for_and_nowhere_written(called: Path) -> None:
    environment = {"VLLM_API_KEY": "secret-key"}
    (script,) = examples.render("docker", *examples.PLAIN, "BIND=0.0.0.0", environment=environment)
    assert "secret-key" not in script
    done = run(script, called)
    assert done.returncode != 0 and "VLLM_API_KEY: is not set" in done.stderr
    assert run(script, called, environment).returncode == 0
    assert "--env=VLLM_API_KEY" in (called / "words").read_text().split("\0")


def test_each_of_several_hosts_has_a_script_and_the_first_has_the_api(called: Path) -> None:
    hosts = form.Hosts(2, "192.0.2.1")
    scripts = examples.render("docker", *examples.PLAIN, "TP=8", "BIND=127.0.0.2", hosts=hosts)
    found = []
    for script in scripts:
        assert run(script, called).returncode == 0
        found.append((called / "words").read_text().split("\0"))
    for rank, words in enumerate(found):
        assert {"--nnodes=2", f"--node-rank={rank}", "--master-addr=192.0.2.1", "--network=host"} <= set(words)
        assert '--gpus="device=0,1,2,3"' in words
    assert {"--host=127.0.0.2", "--port=8001"} <= set(found[0])
    assert "--headless" in found[1] and not any(word.startswith("--host") for word in found[1])
