import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.render import examples, form
from tools.cli.errors import UserError

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/bin:/bin"


def config(folder: Path, text: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """What Compose makes of a file, variables replaced."""
    (folder / "x.compose.yaml").write_text(text)
    given = {"PATH": _PATH, "HOME": "/home/x", **(environment or {})}
    command = ["/usr/bin/docker-compose", "-f", "x.compose.yaml", "config"]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False)


def service(folder: Path, text: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    done = config(folder, text, environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = _halved(yaml.safe_load(done.stdout)["services"]["dsv41"])
    return found


def _halved(value: Any) -> Any:
    """Without the doubling that `config` prints so that its output can be read again."""
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: _halved(item) for key, item in value.items()}
    return [_halved(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("given", [examples.PLAIN, examples.HOSTILE])
def test_compose_reads_the_very_launch(given: tuple[str, ...], tmp_path: Path) -> None:
    launch = examples.launch(*given)
    (text,) = examples.render("compose", *given)
    found = service(tmp_path, text)
    assert found["command"] == list(launch.arguments)
    assert found["environment"] == launch.environment
    assert [(one["source"], one["target"], one.get("read_only", False)) for one in found["volumes"]] == [
        (bind.source, bind.target, not bind.write) for bind in launch.binds
    ]
    assert found["image"] == examples.IMAGE
    assert "network_mode" not in found and len(found["ports"]) == 1


def test_compose_would_refuse_an_unknown_key(tmp_path: Path) -> None:
    (text,) = examples.render("compose", *examples.PLAIN)
    done = config(tmp_path, text.replace("cap_drop", "cap_drp"))
    assert done.returncode != 0 and "cap_drp" in done.stderr


def test_key_of_the_environment_is_asked_for_and_nowhere_written(tmp_path: Path) -> None:
    environment = {"VLLM_API_KEY": "secret-key"}
    (text,) = examples.render("compose", *examples.PLAIN, "BIND=192.0.2.7", environment=environment)
    assert "secret-key" not in text
    assert "is not set" in config(tmp_path, text).stderr
    found = service(tmp_path, text, environment)
    assert found["environment"]["VLLM_API_KEY"] == "secret-key"


def test_several_hosts_share_the_hosts_network(tmp_path: Path) -> None:
    texts = examples.render("compose", *examples.PLAIN, "TP=8", hosts=form.Hosts(2, "192.0.2.1"))
    found = [service(tmp_path, text) for text in texts]
    assert [one["network_mode"] for one in found] == ["host", "host"]
    assert "--headless" in found[1]["command"] and "--headless" not in found[0]["command"]


def test_docker_options_are_refused() -> None:
    with pytest.raises(UserError, match="EXTRA_DOCKER_ARGS"):
        examples.render("compose", *examples.PLAIN, "EXTRA_DOCKER_ARGS=--cpus=4")
