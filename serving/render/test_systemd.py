import re
from pathlib import Path

import pytest

from serving.launch import docker_command
from serving.render import examples, form, systemd
from serving.render.systemd_reader import verify, words
from tools.cli.errors import UserError


def write(folder: Path, text: str) -> Path:
    unit = folder / "dsv41.service"
    unit.write_text(text)
    return unit


@pytest.mark.parametrize("given", [examples.PLAIN, examples.HOSTILE, (*examples.PLAIN, "EXTRA_DOCKER_ARGS=--cpus 4")])
def test_systemd_has_no_complaint_and_reads_the_very_words(given: tuple[str, ...], tmp_path: Path) -> None:
    (text,) = examples.render("systemd", *given)
    unit = write(tmp_path, text)
    assert verify(unit) == ""
    lines = re.findall(r"Command Line: (.*)", verify(unit, debug=True))
    (started,) = [line for line in lines if " run " in line]
    # What is doubled for variables is halved when the unit starts.
    read = [word.replace("$$", "$") for word in words(started)]
    assert read == docker_command.run(examples.launch(*given), "--rm", program="/usr/bin/docker")


@pytest.mark.parametrize("line", ["Restrt=always", "Restart=allways"])
def test_systemd_would_complain(line: str, tmp_path: Path) -> None:
    (text,) = examples.render("systemd", *examples.PLAIN)
    assert "Restart=on-failure" in text
    assert verify(write(tmp_path, text.replace("Restart=on-failure", line))) != ""


def test_key_of_the_environment_is_refused() -> None:
    with pytest.raises(UserError, match="write it to a file and set API_KEY_FILE"):
        examples.render("systemd", *examples.PLAIN, environment={"VLLM_API_KEY": "k"})


def test_key_of_a_file_is_named_and_not_read_in(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("VLLM_API_KEY=secret-key\n")
    file.chmod(0o600)
    (text,) = examples.render("systemd", *examples.PLAIN, "BIND=0.0.0.0", f"API_KEY_FILE={file}")
    assert f"--env-file={file}" in text and "secret-key" not in text
    assert verify(write(tmp_path, text)) == ""


def test_a_unit_a_host() -> None:
    files = form.render(examples.request(*examples.PLAIN, "DP=2"), "systemd", form.Hosts(2, "192.0.2.1"), {})
    assert [file.name for file in files] == ["dsv41-0.service", "dsv41-1.service"]
    assert "--data-parallel-size=2" in files[1].text and "host 1 of 2" in files[1].text


def test_plain_words_stay_as_they_are() -> None:
    assert systemd.quote("--port=8000") == "--port=8000"
    assert systemd.quote("") == '""'
