"""Where an image is looked for, and what of it is believed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from images.inspect import records, source
from images.inspect.errors import InspectError
from images.inspect.example import blob_path, docker_save, layout_documents, make_tree, meddled, pack, with_layer
from images.inspect.view import View
from images.manifest import model
from releases.known import Known
from tests.engine.synthetic import COMMIT, make_layout, make_moet_layout
from tools.cli.errors import UserError

R0, R1 = "dsv41:vllm0.33.0-r0", "dsv41:vllm0.33.0-r1"
NOWHERE = "unix:///nonexistent/docker.sock"


@pytest.fixture(scope="module")
def r1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_moet_layout(tmp_path_factory.mktemp("r1") / "layout", R1)


@pytest.fixture
def known(r1: Path, tmp_path: Path) -> Known:
    r0 = make_moet_layout(tmp_path / "r0", R0, steps=())
    return Known.find(make_tree(tmp_path / "tree", {R0: r0, R1: r1}))


def opened(text: object, known: Known | None = None, name: str | None = None) -> View:
    return source.open_image(str(text), known, engine="docker", host=NOWHERE, layout_ref=name)


def refusal(text: object, known: Known | None = None, name: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        opened(text, known, name)
    message = str(caught.value)
    assert "\n" not in message and message.isprintable()
    return message


def test_layout(r1: Path) -> None:
    view = opened(r1)
    assert (view.source, view.kind) == (f"layout {r1}", "layout")
    assert (view.manifest.tag, view.manifest.commit, view.released) == (R1, COMMIT, True)
    assert view.digest == json.loads((r1 / "index.json").read_bytes())["manifests"][0]["digest"]
    assert view.image_id == layout_documents(r1)["config"]["digest"]
    assert [layer.name for layer in view.layers] == ["rootfs", "vllm", "runtime", "overlay_layer", "manifest.layer"]
    assert [layer.digest for layer in view.layers] == [layer["digest"] for layer in layout_documents(r1)["layers"]]
    assert len(view.checked) == 4 and not view.trusted and not view.notes


def test_only_the_manifests_layer_is_read(r1: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(r1, tmp_path / "copy")
    layers = layout_documents(copy)["layers"]
    for layer in layers[:-1]:
        blob_path(copy, layer["digest"]).unlink()
    assert opened(copy).manifest.tag == R1
    blob_path(copy, layers[-1]["digest"]).unlink()
    assert f"blob {layers[-1]['digest']} is missing" in refusal(copy)


def test_tars(r1: Path, tmp_path: Path) -> None:
    layout = opened(r1)
    oci = opened(pack(r1, tmp_path / "oci.tar"))
    assert (oci.kind, oci.digest, oci.manifest) == ("tar", layout.digest, layout.manifest)
    for links in (False, True):
        saved = opened(docker_save(r1, tmp_path / f"saved{links}.tar", links))
        assert (saved.digest, saved.image_id, saved.manifest) == (None, layout.image_id, layout.manifest)
        assert [layer.diff_id for layer in saved.layers] == [layer.diff_id for layer in layout.layers]


def test_record_by_tag_digest_and_image_id(known: Known, r1: Path) -> None:
    layout = opened(r1)
    for text in (R1, layout.digest, layout.image_id):
        view = opened(text, known)
        assert (view.kind, view.source) == ("record", f"record of {R1}")
        assert (view.manifest, view.layers, view.digest) == (layout.manifest, layout.layers, layout.digest)
    assert source.release_of(layout, known) == source.release_of(view, known)
    assert records.view_of_record(known.record(known.changelog.entries[0].tag)).manifest == layout.manifest


def test_order_of_what_a_name_may_be(known: Known, r1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release's tag goes before a file; a file before a registry; and a prefix leaves no choice."""
    monkeypatch.chdir(tmp_path)
    make_moet_layout(tmp_path / R1, "dsv41:vllm0.33.0-r7-dev")
    assert opened(R1, known).kind == "record"
    assert opened(R1).manifest.tag == "dsv41:vllm0.33.0-r7-dev"
    assert opened(f"./{R1}", known).manifest.tag == "dsv41:vllm0.33.0-r7-dev"
    assert opened(f"layout://{R1}", known).manifest.tag == "dsv41:vllm0.33.0-r7-dev"
    (tmp_path / "localhost:1").mkdir()
    shutil.copytree(r1, tmp_path / "localhost:1/dsv41:x")
    assert opened("localhost:1/dsv41:x").kind == "layout"
    assert "localhost:1" in refusal("registry://localhost:1/dsv41:x")
    assert NOWHERE in refusal(f"engine://{R1}", known)


def test_nothing_of_that_name(known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal("dsv41:vllm0.33.0-r9", known)
    assert "no release in CHANGELOG.md; it has dsv41:vllm0.33.0-r1" in message and NOWHERE in message
    message = refusal("other", known)
    assert "'other': is no known release, no file, no folder" in message and NOWHERE in message
    assert "there is no such file or folder" in refusal("./nothing")
    assert "no releases are known" in refusal("record://dsv41:vllm0.33.0-r1")
    assert "no release has this digest" in refusal(f"record://sha256:{'0' * 64}", known)
    (tmp_path / "empty").mkdir()
    assert "is no OCI image layout" in refusal("./empty")
    (tmp_path / "text").write_text("not a tar at all" * 99)
    assert "is no tar" in refusal("./text")
    (tmp_path / "none.tar").write_bytes(bytes(10240))
    assert "a tar, but of no image" in refusal("./none.tar")


def test_record_that_was_altered(known: Known) -> None:
    assert known.root is not None
    path = known.root / "releases/records/dsv41/vllm0.33.0-r1/manifest.json"
    path.write_bytes(path.read_bytes().replace(b"fail", b"work"))
    assert "altered" in refusal(R1, known)


def test_not_moets(tmp_path: Path) -> None:
    directory = make_layout(tmp_path / "other", "other:1", [{"a": b"1"}])
    assert "is no image of Moet's" in refusal(directory)


def test_newer_schema(tmp_path: Path) -> None:
    newer = make_moet_layout(tmp_path / "new", edit_manifest=lambda m: m.update(schema="moet.manifest.v2", more=1))
    message = refusal(newer)
    assert "moet.manifest.v2, this moet reads up to moet.manifest.v1: this moet is older than the image" in message
    other = make_moet_layout(tmp_path / "other", edit_manifest=lambda m: m.update(schema="x\x1b[2J"))
    assert r'found "x\u001b[2J"' in refusal(other)
    missing = make_moet_layout(tmp_path / "missing", edit_manifest=lambda m: m["steps"][0].pop("reason"))
    assert "steps[0].reason: missing" in refusal(missing)


@pytest.mark.parametrize("what", ["manifest", "configuration", "layer"])
def test_corrupt_blobs(r1: Path, tmp_path: Path, what: str) -> None:
    copy = shutil.copytree(r1, tmp_path / "copy")
    image = layout_documents(copy)
    digest = {
        "manifest": json.loads((copy / "index.json").read_bytes())["manifests"][0]["digest"],
        "configuration": image["config"]["digest"],
        "layer": image["layers"][-1]["digest"],
    }[what]
    path = blob_path(copy, digest)
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.unlink()
    path.write_bytes(data)
    assert "corrupt" in refusal(copy)
    path.write_bytes(data[:-1])
    assert "corrupt" in refusal(copy) or "bytes" in refusal(copy)


def test_anchor_of_another_manifest(r1: Path, tmp_path: Path) -> None:
    def anchor(config: dict[str, dict[str, list[str]]], _: object) -> None:
        config["config"]["Env"] = [f"{model.ANCHOR}={'0' * 64}"]

    assert "altered" in refusal(meddled(r1, tmp_path / "other", anchor))


def test_label_that_says_otherwise(tmp_path: Path) -> None:
    tag = {"org.moet.tag": "a\x1b]0;b\x07"}
    lying = make_moet_layout(tmp_path / "x", edit_labels=lambda labels: labels.update(tag))
    assert r"label org.moet.tag is 'a\x1b]0;b\x07'" in refusal(lying)


def test_layers_of_somebody_else_are_named(r1: Path, tmp_path: Path) -> None:
    view = opened(with_layer(r1, tmp_path / "more", bytes(10240)))
    assert view.manifest.tag == R1
    assert view.notes == ("1 layer above the manifest's: somebody else's, which it does not describe",)
    assert (view.layers[-1].name, view.layers[-1].comment) == ("layer 6", "RUN something")


def test_several_images(r1: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(r1, tmp_path / "copy")
    index = json.loads((copy / "index.json").read_bytes())
    one = index["manifests"][0]
    other = {**one, "digest": f"sha256:{'1' * 64}", "platform": {"architecture": "arm64", "os": "linux"}}
    index["manifests"].append({**other, "annotations": {}})
    (copy / "index.json").write_text(json.dumps(index))
    message = refusal(copy)
    assert f"linux/arm64 sha256:{'1' * 64}" in message and "--ref" in message
    for name in ("vllm0.33.0-r1", R1, one["digest"]):
        assert opened(copy, name=name).manifest.tag == R1
    assert "no images called 'x'" in refusal(copy, name="x")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("digest", "sha256:../../../../etc/passwd"),
        ("digest", "md5:0"),
        ("size", -1),
        ("size", "1"),
        ("mediaType", None),
    ],
)
def test_descriptors_that_are_none(r1: Path, tmp_path: Path, place: str, value: object) -> None:
    copy = shutil.copytree(r1, tmp_path / "copy")
    index = json.loads((copy / "index.json").read_bytes())
    index["manifests"][0][place] = value
    (copy / "index.json").write_text(json.dumps(index))
    message = refusal(copy)
    assert "index.json" in message


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{", "null", "[" * 9999, "1" * 9999, '{"a": 1, "a": 2}', r'{"a": "\ud800"}'),
        *('{"manifests": {}}', '{"manifests": []}', '{"manifests": [[]]}'),
    ],
)
def test_documents_of_another_shape(r1: Path, tmp_path: Path, text: str) -> None:
    copy = shutil.copytree(r1, tmp_path / "copy")
    (copy / "index.json").write_text(text)
    refusal(copy)


def test_blob_that_is_no_file(r1: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(r1, tmp_path / "copy")
    digest = layout_documents(copy)["layers"][-1]["digest"]
    blob_path(copy, digest).unlink()
    os.mkfifo(blob_path(copy, digest))
    assert "is missing" in refusal(copy)


def test_packed_anew_is_said(known: Known, r1: Path, tmp_path: Path) -> None:
    def annotate(_: object, image: dict[str, object]) -> None:
        image["annotations"] = {}

    other = meddled(r1, tmp_path / "other", annotate)
    (note,) = opened(other, known).notes
    assert note.startswith(f"{R1} by its image id, but its layers were packed anew")


def test_errors_are_one_safe_line() -> None:
    assert str(InspectError("a\nb\x1b[31m\u202e\x9b")) == r"a\nb\x1b[31m\u202e\x9b"
    assert len(str(InspectError("x" * 5000))) < 1100
