"""Reading layouts: the image that is meant, and the line for a broken one."""

import json
from pathlib import Path

import pytest

from images.engine import layout
from images.engine.errors import EngineError
from tests.engine.synthetic import make_layout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_layout(tmp_path / "layout", "one:r1", [{"a": b"1"}, {"b": b"2"}])


def _add_entry(directory: Path, name: str, **changes: object) -> None:
    index = json.loads((directory / "index.json").read_bytes())
    index["manifests"].append(
        {
            **index["manifests"][0],
            "annotations": {"io.containerd.image.name": name, layout.REF_NAME: name.rpartition(":")[2]},
            **changes,
        }
    )
    (directory / "index.json").write_text(json.dumps(index))


def test_the_image_and_its_layers(directory: Path) -> None:
    image = layout.read(directory, "one:r1")
    assert image.source == f"oci:{directory}:r1"
    assert [layer.blob.path.name for layer in image.layers] == [layer.blob.digest[7:] for layer in image.layers]
    assert all(layer.diff_id != layer.blob.digest for layer in image.layers)


def test_a_name_chooses_among_several(directory: Path) -> None:
    _add_entry(directory, "two:r1")
    _add_entry(directory, "three:r2")
    assert layout.read(directory, "three:r2").ref_name == layout.read(directory, "r2").ref_name == "r2"
    with pytest.raises(
        EngineError, match="cannot tell which image is meant by 'four:r1'; the layout has: one:r1, three:r2, two:r1"
    ):
        layout.read(directory, "four:r1")


def test_what_is_attached_to_an_image_is_not_an_image(directory: Path) -> None:
    _add_entry(directory, "sbom", artifactType="application/vnd.cyclonedx+json")
    assert layout.read(directory).ref_name == "r1"


@pytest.mark.parametrize("damage", ["missing", "short", "altered"])
def test_a_broken_blob_is_named(directory: Path, damage: str) -> None:
    config = layout.read(directory).config
    words = {"missing": "is missing", "short": "has 1 bytes", "altered": "does not have the bytes its name says"}
    if damage == "missing":
        config.path.unlink()
    else:
        config.path.write_bytes(b" " if damage == "short" else b" " * config.size)
    with pytest.raises(EngineError) as caught:
        layout.read(directory)
    assert config.digest in str(caught.value) and words[damage] in str(caught.value)


def test_not_a_layout(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not an OCI image layout"):
        layout.read(tmp_path)
