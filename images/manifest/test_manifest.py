"""The manifest builder, from its inputs on disk to the three files that it writes."""

import copy
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from images.manifest import cli, example, model
from images.manifest.example import SITE, Inputs, run

SCHEMA = Path(__file__).resolve().with_name("schema.json")
ROOT = Path(cli.__file__).parents[2]


@pytest.fixture
def given() -> Inputs:
    return example.inputs()


def build(given: Inputs, folder: Path, with_overlay: bool = True) -> tuple[Any, Any, Any]:
    status, outputs = run(given, folder, with_overlay)
    assert status == 0
    manifest, labels, env = (json.loads(path.read_text()) for path in outputs)
    return manifest, labels, env


def test_manifest_keeps_the_schema(given: Inputs, tmp_path: Path) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    manifest, _, _ = build(given, tmp_path)
    jsonschema.validate(manifest, schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m.pop("site"),
        lambda m: m.update(extra=1),
        lambda m: m["steps"][0].update(numerics="exact"),
        lambda m: m["steps"][0].update(switch="MOET_X"),
        lambda m: m["steps"][0].update(number=0),
        lambda m: m["switches"][0].update(on="0"),
        lambda m: m["files"][0].update(sha256="0"),
        lambda m: m["files"][0].update(path="usr/bin/x"),
        lambda m: m["pins"][0].pop("sha256"),
        lambda m: m["pins"][1].pop("commit"),
        lambda m: m.update(tag="dsv41:latest"),
    ],
)
def test_schema_refuses(given: Inputs, tmp_path: Path, spoil: Callable[[Any], object]) -> None:
    manifest, _, _ = build(given, tmp_path)
    spoil(manifest)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, json.loads(SCHEMA.read_text()), jsonschema.Draft202012Validator)


def test_contents(given: Inputs, tmp_path: Path) -> None:
    manifest, _, _ = build(given, tmp_path)
    assert [each["number"] for each in manifest["steps"]] == [1, 2]
    assert [each["name"] for each in manifest["patches"]] == ["z.patch", "b.patch"]
    assert [(each["kind"], each["name"]) for each in manifest["pins"]] == [
        ("deb", "bash"),
        ("source", "deepgemm"),
        ("wheel", "vllm"),
    ]
    assert "commit" not in manifest["pins"][0]
    assert manifest["switches"] == [
        {
            "name": "VLLM_MOET_NEXT",
            "default": "0",
            "on": "1",
            "step": "next",
            "meaning": "1 turns step 2 on; 0 gives back upstream's path",
        },
        {"name": "VLLM_MOET_TIERS", "default": "1", "on": "1", "step": "tiers", "meaning": "Tiers."},
    ]
    assert manifest["files"][0] == {
        "path": "/usr/bin/moet-serve",
        "sha256": "7" * 64,
        "size": 14,
        "kind": "runtime",
    }
    assert [each["kind"] for each in manifest["files"]] == [
        "runtime",
        "overlay",
        "overlay",
        "overlay",
        "overlay",
    ]
    assert manifest["overlays"] == [{key: given["overlay"][key] for key in ("project", "version", "source")}]


def test_kernels_of_a_step(given: Inputs, tmp_path: Path) -> None:
    given["line"]["steps"][0]["kernels"] = ["gemv"]
    face = [f"{SITE[1:]}/moet_kernels/gemv/op.py", "f", 420, 16, "9" * 64, "moet"]
    given["kernel layer"] = [example.library("gemv"), face]
    manifest, _, _ = build(given, tmp_path)
    jsonschema.validate(manifest, json.loads(SCHEMA.read_text()), jsonschema.Draft202012Validator)
    assert [step["kernels"] for step in manifest["steps"]] == [[], ["gemv"]]
    found = [file["path"].removeprefix(SITE) for file in manifest["files"] if file["kind"] == "kernel"]
    assert found == ["/moet_kernels/gemv/gemv.so", "/moet_kernels/gemv/op.py"]


def test_image_reads_what_was_built(given: Inputs, tmp_path: Path) -> None:
    _, outputs = run(given, tmp_path)
    data = outputs[0].read_bytes()
    assert model.dumps(model.decode(model.Manifest, model.loads(data))) == data


def test_labels_and_environment(given: Inputs, tmp_path: Path) -> None:
    _, labels, env = build(given, tmp_path)
    digest = hashlib.sha256((tmp_path / "manifest.out").read_bytes()).hexdigest()
    assert env == {"MOET_MANIFEST_SHA256": digest}
    assert len(labels.pop("org.moet.pins.sha256")) == 64
    assert labels == {
        "com.example.team": "x",
        "org.moet.base": "vllm 0.33.0 4ba787ec9",
        "org.moet.line": "dsv41",
        "org.moet.manifest": "/usr/share/moet/manifest.json",
        "org.moet.manifest.sha256": digest,
        "org.moet.steps": "1:tiers,2:next",
        "org.moet.release": "unreleased",
        "org.moet.tag": "dsv41:vllm0.33.0-r1-dev",
        "org.opencontainers.image.created": "2026-01-31T12:00:00Z",
        "org.opencontainers.image.description": "A sentence",
        "org.opencontainers.image.title": "dsv41",
        "org.opencontainers.image.version": "vllm0.33.0-r1-dev",
    }


def test_pins_label_changes_with_a_pin_alone(given: Inputs, tmp_path: Path) -> None:
    first = build(given, tmp_path)[1]["org.moet.pins.sha256"]
    given["line"]["steps"][0]["reason"] = "Another."
    assert build(given, tmp_path)[1]["org.moet.pins.sha256"] == first
    given["pins"][2]["sha256"] = "c" * 64
    assert build(given, tmp_path)[1]["org.moet.pins.sha256"] != first


def test_release_states_its_commit(given: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = tmp_path / "status.txt"
    commit = "0123456789abcdef" * 2 + "01234567"
    time = "STABLE_MOET_COMMIT_TIME 2026-02-01T00:00:00Z\n"
    status.write_text(f"BUILD_HOST somewhere\nSTABLE_MOET_COMMIT {commit}\n{time}")
    given["line"]["tag"] = "dsv41:vllm0.33.0-r1"
    assert run(given, tmp_path)[0] == 1
    assert "expected dsv41:vllm0.33.0-r<N>-dev" in capsys.readouterr().err
    code, outputs = run(given, tmp_path, status=status)
    assert code == 0
    manifest, labels, _ = (json.loads(path.read_text()) for path in outputs)
    jsonschema.validate(manifest, json.loads(SCHEMA.read_text()), jsonschema.Draft202012Validator)
    assert manifest["commit"] == commit
    assert labels["org.opencontainers.image.revision"] == commit
    assert labels["org.opencontainers.image.created"] == "2026-02-01T00:00:00Z"
    assert labels["org.moet.release"] == "released"
    assert "somewhere" not in outputs[0].read_text() + outputs[1].read_text()
    status.write_text("BUILD_HOST somewhere\n")
    assert run(given, tmp_path, status=status)[0] == 1
    assert "lacks STABLE_MOET_COMMIT: a release is built with --config=release" in capsys.readouterr().err
    status.write_text(f"STABLE_MOET_COMMIT HEAD\n{time}")
    assert run(given, tmp_path, status=status)[0] == 1
    assert "commit 'HEAD': expected 40 hexadecimal digits" in capsys.readouterr().err


def test_order_of_inputs_does_not_matter(given: Inputs, tmp_path: Path) -> None:
    _, outputs = run(given, tmp_path)
    before = [path.read_bytes() for path in outputs]
    assert all(data.endswith(b"}\n") and not data.endswith(b"\n\n") for data in before)
    shuffled = copy.deepcopy(given)
    for items in (
        shuffled["line"]["steps"],
        shuffled["pins"],
        shuffled["overlay layer"],
        shuffled["overlay"]["files"],
    ):
        items.reverse()
    shuffled["line"] = dict(reversed(shuffled["line"].items()))
    shuffled["pins"].append(dict(shuffled["pins"][0]))
    run(shuffled, tmp_path)
    assert [path.read_bytes() for path in outputs] == before


def test_hash_seed_does_not_matter(given: Inputs, tmp_path: Path) -> None:
    _, outputs = run(given, tmp_path)
    before = outputs[0].read_bytes()
    code = (
        "import sys; sys.path[:] = sys.argv[1].split(':'); "
        "from images.manifest import cli; sys.exit(cli.main(sys.argv[2:]))"
    )
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        arguments = [
            "--line",
            "line.json",
            "--pins",
            "pins.json",
            "--site",
            SITE,
            "--overlay",
            "overlay.json",
            "../code",
        ]
        arguments += ["--layer", "overlay", "overlay layer.json", "--layer", "runtime", "runtime layer.json"]
        arguments += ["--manifest", "m", "--labels", "l", "--env", "e"]
        for source in tmp_path.glob("*.json"):
            (folder / source.name).write_bytes(source.read_bytes())
        subprocess.run(
            [sys.executable, "-c", code, ":".join([str(ROOT), *sys.path]), *arguments],
            cwd=folder,
            env={"PYTHONHASHSEED": seed},
            check=True,
        )
        assert (folder / "m").read_bytes() == before


def test_image_without_steps_needs_no_overlay(given: Inputs, tmp_path: Path) -> None:
    given["line"].update(steps=[], tag="dsv41:vllm0.33.0-r0-dev", created=None)
    manifest, labels, _ = build(given, tmp_path, with_overlay=False)
    assert (manifest["steps"], manifest["patches"], manifest["overlays"]) == ([], [], [])
    assert labels["org.moet.steps"] == ""
    assert "org.opencontainers.image.created" not in labels


def test_unreadable_input(tmp_path: Path, given: Inputs, capsys: pytest.CaptureFixture[str]) -> None:
    run(given, tmp_path)
    for name, text, message in (
        ("pins", '[{"name": "x"}]', "pins[0].version: missing"),
        ("pins", '{"a": 1, "a": 2}', "a: key stands twice in one object"),
        ("line", "{", "not JSON at line 1, column 2"),
        ("overlay layer", '[["x"]]', "is no layer's listing"),
    ):
        before = (tmp_path / f"{name}.json").read_text()
        (tmp_path / f"{name}.json").write_text(text)
        arguments = ["--line", f"{tmp_path}/line.json", "--pins", f"{tmp_path}/pins.json", "--site", SITE]
        arguments += ["--layer", "overlay", f"{tmp_path}/overlay layer.json"]
        arguments += [f"--{each}={tmp_path}/new.{each}" for each in ("manifest", "labels", "env")]
        assert cli.main(arguments) == 1
        line = capsys.readouterr().err
        assert f"{name}.json" in line
        assert message in line
        assert line.count("\n") == 1
        (tmp_path / f"{name}.json").write_text(before)
    assert not list(tmp_path.glob("new.*"))


def test_decode_refuses_what_only_looks_alike() -> None:
    with pytest.raises(model.DataError, match=r"size: expected an integer, found 1\.0"):
        model.decode(model.File, {"path": "/x", "sha256": "", "size": 1.0, "kind": "kernel"})
    with pytest.raises(model.DataError, match="kind: expected one of overlay, kernel, runtime, found null"):
        model.decode(model.File, {"path": "/x", "sha256": "", "size": 1, "kind": None})
