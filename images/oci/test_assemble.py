"""Assembly of the layout: what the index leads to, and what is refused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from images.oci import assemble, layer, testing

SPEC: dict[str, Any] = {
    "reference": "line:base1-r1",
    "env": {"PATH": "/usr/bin", "HOME": "/var/lib/moet"},
    "entrypoint": ["/usr/bin/tool"],
    "cmd": [],
    "user": "1000:1000",
    "workdir": "/",
    "replaces": {"overlay": "vllm-1"},
}
LABELS = {assemble.CREATED: "2026-11-02T10:13:18Z"}


def load(layout: Path, digest: str) -> Any:
    return json.loads((layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes())


def test_layout_leads_to_every_blob(tmp_path: Path) -> None:
    parts = [testing.part(tmp_path, "a", {"x": b"1"}, "a-1"), testing.part(tmp_path, "b", {"y": b"2"}, "b-1")]
    layout = tmp_path / "out"
    labels = LABELS | {"org.opencontainers.image.title": "t", "org.moet.line": "l"}
    digest = assemble.assemble(layout, SPEC, parts, labels)
    [entry] = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert entry["digest"] == digest and entry["annotations"]["org.opencontainers.image.ref.name"] == "base1-r1"
    manifest = load(layout, digest)
    config = load(layout, manifest["config"]["digest"])
    assert config["config"]["Env"] == ["HOME=/var/lib/moet", "PATH=/usr/bin"]
    assert config["config"]["Labels"]["org.moet.line"] == "l"
    assert manifest["annotations"] == LABELS | {"org.opencontainers.image.title": "t"}
    assert {config["created"], *(entry["created"] for entry in config["history"])} == set(LABELS.values())
    assert [one["digest"] for one in manifest["layers"]] == [p.descriptor.digest for p in parts]
    assert config["rootfs"]["diff_ids"] == [p.descriptor.diff_id for p in parts]
    assert len(config["history"]) == 2
    blobs = {path.name: path.read_bytes() for path in (layout / "blobs/sha256").iterdir()}
    assert len(blobs) == 4
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())


def test_blobs_are_linked_not_copied(tmp_path: Path) -> None:
    part = testing.part(tmp_path, "a", {"x": b"1"}, "a-1")
    assemble.assemble(tmp_path / "out", SPEC, [part], LABELS)
    blob = tmp_path / "out/blobs/sha256" / part.descriptor.digest.removeprefix("sha256:")
    assert blob.stat().st_ino == part.path.stat().st_ino


def test_packages_that_collide(tmp_path: Path) -> None:
    parts = [testing.part(tmp_path, "a", {"x": b"1"}, "a-1"), testing.part(tmp_path, "b", {"x": b"2"}, "b-1")]
    with pytest.raises(layer.LayerError, match="/x: a-1 and b-1 install different bytes"):
        assemble.assemble(tmp_path / "out", SPEC, parts, LABELS)
    assert not (tmp_path / "out").exists()


def test_same_bytes_do_not_collide(tmp_path: Path) -> None:
    parts = [testing.part(tmp_path, "a", {"x": b"1"}, "a-1"), testing.part(tmp_path, "b", {"x": b"1"}, "b-1")]
    assert assemble.collisions(parts, {}) == []


def test_overlay_replaces_its_own_project_alone(tmp_path: Path) -> None:
    base = testing.part(tmp_path, "a", {"x": b"1"}, "vllm-1")
    other = testing.part(tmp_path, "b", {"y": b"1"}, "torch-1")
    overlay = testing.part(tmp_path, "overlay", {"x": b"2", "y": b"2"}, "vllm-1+moet")
    assert assemble.collisions([base, overlay], SPEC["replaces"]) == []
    [line] = assemble.collisions([base, other, overlay], SPEC["replaces"])
    assert line.startswith("/y: torch-1 and vllm-1+moet")


def test_labels_without_a_time(tmp_path: Path) -> None:
    part = testing.part(tmp_path, "a", {"x": b"1"}, "a-1")
    with pytest.raises(layer.LayerError, match=r"labels lack org.opencontainers.image.created"):
        assemble.assemble(tmp_path / "out", SPEC, [part], {})
    assert not (tmp_path / "out").exists()


def test_too_many_layers(tmp_path: Path) -> None:
    part = testing.part(tmp_path, "a", {"x": b"1"}, "a-1")
    with pytest.raises(layer.LayerError, match="25 layers; at most 24"):
        assemble.assemble(tmp_path / "out", SPEC, [part] * 25, LABELS)
    assert not (tmp_path / "out").exists()
