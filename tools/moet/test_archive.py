"""The operator's one file: no tree, no Bazel, no environment, the host's python3 alone."""

import datetime
import json
import os
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from releases.changelog import grammar
from releases.cutting import draft, layout_record
from releases.tag import Tag
from tests.engine import synthetic
from tools.moet import archive_writer

ARCHIVE = Path("tools/moet/moet.pyz").resolve()
TAG = "toy:vllm0.33.0-r7"


def run(program: Path, folder: Path, *words: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
    command = ["/usr/bin/python3.11", "-I", "-S", str(program), *words]
    done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.fixture
def carrying(tmp_path: Path) -> Path:
    """The program as it would be with a release TAG."""
    tag = Tag.parse(TAG)
    record = layout_record.read(synthetic.make_moet_layout(tmp_path / "layout", TAG))
    entry = draft.entry(tag, datetime.date(2026, 11, 29), record, None, {})
    text = grammar.insert("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n", entry, False)
    with zipfile.ZipFile(ARCHIVE) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    files["releases/carried/CHANGELOG.md"] = text.encode()
    files |= {f"releases/records/{tag.line}/{tag.name}/{name}": data for name, data in record.files().items()}
    archive_writer.write(tmp_path / "moet.pyz", files)
    return tmp_path / "moet.pyz"


def test_help_of_every_group(empty: Path) -> None:
    groups = [("image", "explain"), ("patch", "doctor"), ("release", "bisect"), ("serve", "knobs")]
    groups += [("plan", "kv"), ("kvcache", "ttl")]
    without = {"plan": ["experts"]}
    for group, verb in groups:
        said = run(ARCHIVE, empty, group, "--help").stdout
        assert verb in said
        # What plans and stores experts needs numpy, which the file leaves out, and says so.
        assert [line.split()[0] for line in said.splitlines() if "cannot run here" in line] == without.get(group, [])
    assert os.listdir(empty) == []


def test_is_one_executable_file_that_names_its_interpreter(empty: Path) -> None:
    assert ARCHIVE.stat().st_mode & stat.S_IXUSR
    assert ARCHIVE.read_bytes().startswith(b"#!/usr/bin/env python3\nPK")
    done = subprocess.run([ARCHIVE, "image", "explain", "--help"], cwd=empty, env={"PATH": "/usr/bin:/bin"}, check=True)
    assert done.returncode == 0


def test_holds_no_compiled_part_and_no_trace_of_the_machine() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = archive.namelist()
        assert [name for name in names if name.endswith((".so", ".pyc", ".pyd"))] == []
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert "certifi/cacert.pem" in names
        assert "releases/carried/CHANGELOG.md" in names
        licenses = [name for name in names if ".dist-info/" in name and "LICENSE" in name.upper()]
        assert len(licenses) >= 5
    assert str(Path.home()).encode() + b"/" not in ARCHIVE.read_bytes() or str(Path.home()) == "/"


def test_explains_a_release_that_it_carries(carrying: Path, empty: Path) -> None:
    said = run(carrying, empty, "image", "explain", TAG).stdout
    assert TAG in said
    assert synthetic.COMMIT[:12] in said
    for step in synthetic.STEPS:
        assert step.name in said
    document = json.loads(run(carrying, empty, "image", "explain", TAG, "--json").stdout)
    assert document["schema"].startswith("moet.image-explain")


def test_record_that_was_altered_in_the_file_is_refused(carrying: Path, empty: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(carrying) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    path = f"releases/records/{TAG.replace(':', '/')}/manifest.json"
    altered = files[path].replace(b"Without", b"without")
    assert altered != files[path]
    files[path] = altered
    archive_writer.write(tmp_path / "altered.pyz", files)
    done = run(tmp_path / "altered.pyz", empty, "image", "explain", TAG, status=1)
    assert "one was altered" in done.stderr


def test_release_that_it_does_not_know(carrying: Path, empty: Path) -> None:
    ends = ["--good", TAG, "--bad", "toy:vllm0.33.0-r8"]
    done = run(carrying, empty, "release", "bisect", *ends, "--", "true", status=1)
    assert done.stderr.count("\n") == 1
    assert f"it has {TAG}" in done.stderr


def test_what_needs_the_tree_says_so(carrying: Path, empty: Path) -> None:
    done = run(carrying, empty, "release", "cut", "toy", status=1)
    assert done.stderr.startswith("moet release cut: cutting a release needs Moet's source tree")


def test_profiles_are_in_it_and_every_form_can_be_rendered(carrying: Path, empty: Path) -> None:
    assert "MODEL_DIR" in run(carrying, empty, "serve", "knobs", "dsv41").stdout
    given = ["--set", "MODEL_DIR=/models/x", "--set", "IMAGE=dsv41:vllm0.33.0-r2-dev"]
    for form, word in (("docker", "docker run"), ("kubernetes", "StatefulSet"), ("compose", "services:")):
        assert word in run(carrying, empty, "serve", "render", "dsv41", "--form", form, *given).stdout


def test_bill_of_materials_of_a_release_that_it_carries(carrying: Path, empty: Path) -> None:
    document = json.loads(run(carrying, empty, "image", "sbom", TAG).stdout)
    assert document["bomFormat"] == "CycloneDX"
