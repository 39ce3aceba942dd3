"""The overlay layer: replaced files, and a RECORD that tells the truth about them."""

import hashlib
import json
from pathlib import Path

import pytest

from images.oci import layer, overlay_layer, testing

SITE = "usr/local/lib/python3.11/dist-packages"
RECORD = f"{SITE}/vllm-0.33.0.dist-info/RECORD"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "overlay/vllm").mkdir(parents=True)
    (tmp_path / "overlay/vllm/a.py").write_bytes(b"new")
    after = hashlib.sha256(b"new").hexdigest()
    overlay = {"project": "vllm", "version": "0.33.0", "files": [{"path": "vllm/a.py", "before": "0", "after": after}]}
    (tmp_path / "overlay.json").write_text(json.dumps(overlay))
    record = f"{testing.record_row('vllm/a.py', b'old')}\n{testing.record_row('vllm/b.py', b'b')}\n{RECORD},,\n"
    (tmp_path / "records.json").write_text(json.dumps({RECORD: record}))
    return tmp_path


def build(folder: Path) -> int:
    return overlay_layer.main([
        "--name", "overlay", "--mtime", "1767225600", "--out", str(folder / "o"), "--overlay", str(folder / "overlay"),
        "--manifest", str(folder / "overlay.json"), "--records", str(folder / "records.json"),
    ])  # fmt: skip


def test_replaces_file_and_record_row(inputs: Path) -> None:
    assert build(inputs) == 0
    entries = {e.path: e for e in layer.read_listing(inputs / "o.files.json")}
    assert entries[f"{SITE}/vllm/a.py"].content == hashlib.sha256(b"new").hexdigest()
    expected = f"{testing.record_row('vllm/a.py', b'new')}\n{testing.record_row('vllm/b.py', b'b')}\n"
    assert entries[RECORD].content == hashlib.sha256(f"{RECORD},,\n{expected}".encode()).hexdigest()


def test_new_file_gets_a_row() -> None:
    text = overlay_layer.updated_record("a,sha256=x,1\n", {"b": (hashlib.sha256(b"b").hexdigest(), 1)})
    assert text == f"a,sha256=x,1\n{testing.record_row('b', b'b')}\n"


def test_file_differs_from_manifest(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "overlay/vllm/a.py").write_bytes(b"else")
    assert build(inputs) == 1
    assert "vllm/a.py is not what overlay.json says" in capsys.readouterr().err
    assert not list(inputs.glob("o*.gz"))


def test_other_version_in_the_base(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "records.json").write_text(json.dumps({RECORD.replace("0.33.0", "0.34.0"): ""}))
    assert build(inputs) == 1
    assert "the overlay is of vllm 0.33.0, but the base layer has no" in capsys.readouterr().err
