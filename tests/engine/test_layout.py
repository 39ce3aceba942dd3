"""The layout against OCI's own schemas, and every blob and layer against its digest."""

import json
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from isal import igzip
from jsonschema import Draft4Validator
from referencing import Registry
from referencing.jsonschema import DRAFT4

from images.engine import layout
from images.engine.layout import Image, Layer
from tests.engine import inputs

# Debian's golang-github-opencontainers-image-spec-dev puts them below the import path of the specification's module.
_SCHEMAS = "*/opencontainers/image-spec/schema"
_SOURCES = Path("/usr/share/gocode/src")
_CHUNK = 1 << 20


@pytest.fixture(scope="module", params=["MOET_IMAGE_LAYOUT", "MOET_BASE_LAYOUT"])
def image(request: pytest.FixtureRequest) -> Image:
    return layout.read(inputs.path(request.param))


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found = [path for folder in _SOURCES.glob(_SCHEMAS) for path in sorted(folder.glob("*.json"))]
    assert found, "no OCI schemas: apt-get install golang-github-opencontainers-image-spec-dev"
    return {path.name: _without_ids(json.loads(path.read_text())) for path in found}


def _without_ids(node: Any) -> Any:
    """The schemas name themselves with addresses that lead nowhere; by file name they find each other."""
    if isinstance(node, dict):
        return {key: _without_ids(value) for key, value in node.items() if not (key == "id" and isinstance(value, str))}
    return [_without_ids(value) for value in node] if isinstance(node, list) else node


def _faults(schemas: dict[str, Any], name: str, document: Any) -> list[str]:
    resources = [(key, DRAFT4.create_resource(value)) for key, value in schemas.items()]
    registry: Registry[Any] = Registry().with_resources(resources)
    validator = Draft4Validator({"$ref": name}, registry=registry)
    return [f"{list(error.absolute_path)}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("image-layout-schema.json", "oci-layout"),
        ("image-index-schema.json", "index.json"),
        ("image-manifest-schema.json", "manifest"),
        ("config-schema.json", "config"),
    ],
)
def test_documents_follow_the_schemas(image: Image, schemas: dict[str, Any], name: str, file: str) -> None:
    path = {"manifest": image.manifest.path, "config": image.config.path}.get(file, image.directory / file)
    assert _faults(schemas, name, json.loads(path.read_bytes())) == []


def test_the_schemas_refuse_a_broken_manifest(image: Image, schemas: dict[str, Any]) -> None:
    document = json.loads(image.manifest.path.read_bytes())
    document["layers"][0]["digest"] = "no-algorithm"
    assert _faults(schemas, "image-manifest-schema.json", document) != []


def test_nothing_but_the_image_lies_in_the_layout(image: Image) -> None:
    blobs = {path.name for path in (image.directory / "blobs/sha256").iterdir()}
    named = [image.manifest, image.config, *(layer.blob for layer in image.layers)]
    assert blobs == {blob.digest.removeprefix("sha256:") for blob in named}
    assert {path.name for path in image.directory.iterdir()} == {"blobs", "index.json", "oci-layout"}


def test_layers_are_few_and_explained(image: Image) -> None:
    assert 1 <= len(image.layers) <= 24
    config = json.loads(image.config.path.read_bytes())
    assert len(config["history"]) == len(image.layers)
    assert all(entry["created_by"] and entry["created"] == config["created"] for entry in config["history"])


def test_every_blob_has_its_digest_and_every_layer_its_diff_id() -> None:
    """Both images share most layers: each file is read once."""
    images = [layout.read(inputs.path(variable)) for variable in ("MOET_IMAGE_LAYOUT", "MOET_BASE_LAYOUT")]
    layers = sorted({layer for image in images for layer in image.layers}, key=lambda layer: -layer.blob.size)
    with ProcessPoolExecutor(2) as pool:
        assert [fault for faults in pool.map(_layer_faults, layers) for fault in faults] == []


def _layer_faults(layer: Layer) -> list[str]:
    stored, unpacked = sha256(), sha256()
    with layer.blob.path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            stored.update(chunk)
    with igzip.IGzipFile(str(layer.blob.path), "rb") as stream:  # type: ignore[no-untyped-call]
        while chunk := stream.read(_CHUNK):
            unpacked.update(chunk)
    pairs = {layer.blob.digest: stored.hexdigest(), layer.diff_id: unpacked.hexdigest()}
    return [
        f"{layer.blob.path}: sha256:{found}, {wanted} expected"
        for wanted, found in pairs.items()
        if wanted != f"sha256:{found}"
    ]
