"""The same with podman: pulled by digest, tagged, and back."""

from pathlib import Path

import pytest

from releases.rollback.state import State
from tests.engine.engines import private_podman
from tests.release.toy import LINE, R0, R1, document, make_toy, moet


def test_forward_and_back(tmp_path: Path, published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = make_toy(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    command = ["image", "rollback", LINE, "--tree", str(toy.root), "--engine", "podman"]
    registry = ["--registry", published, "--plain-http"]
    with private_podman() as podman:
        for name, value in podman.environment.items():
            monkeypatch.setenv(name, value)
        assert document(*command, *registry, "--to", R1)["source"] == "registry"
        assert document(*command)["source"] == "rebuild"
        assert document(*command, "--undo")["source"] == "engine"
        current = State.read(LINE).current
        assert current and (current.tag, current.engine) == (R1, "podman")
        for tag in (R0, R1):
            found = podman("image", "inspect", "--format", "{{.Id}}", f"localhost/{tag}").stdout.strip()
            assert f"sha256:{found}" == toy.entry(tag).image_id
        podman("tag", R0, "put:aside")
        podman("untag", R0, R0)
        podman("tag", R1, R0)
        status, _, err = moet(*command)
        assert status == 1 and f"{R0} is {toy.entry(R1).image_id} in podman" in err
