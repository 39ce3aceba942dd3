"""Wheels in a layer: as pip would install them, the same bytes from any folder and order."""

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from images.oci import testing, wheel_layer

SITE = "usr/local/lib/python3.11/dist-packages"


def build(folder: Path, wheels: list[Path], *extra: str) -> int:
    return wheel_layer.main(
        ["--name", "t", "--mtime", "1767225600", "--out", str(folder / "t"), *extra, *map(str, wheels)]
    )


def contents(folder: Path) -> dict[str, bytes]:
    with tarfile.open(folder / "t.tar.gz") as tar:
        return {i.name: f.read() for i in tar.getmembers() if i.isreg() and (f := tar.extractfile(i))}


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    return testing.wheel(
        tmp_path,
        "tool",
        {
            "tool/__init__.py": b"",
            "tool-1.0.data/scripts/tool-run": b"#!python\nprint(1)\n",
            "tool-1.0.data/data/share/tool/doc": b"text",
            "tool-1.0.data/headers/tool.h": b"#pragma once\n",
        },
        {"tool": "tool:main"},
    )


def test_installs_as_pip_would(tmp_path: Path, tool: Path) -> None:
    assert build(tmp_path, [tool]) == 0
    files = contents(tmp_path)
    assert files["usr/local/bin/tool-run"] == b"#!/usr/bin/python3.11\nprint(1)\n"
    assert files["usr/local/bin/tool"].startswith(b"#!/usr/bin/python3.11\n")
    assert files["usr/local/share/tool/doc"] == b"text"
    assert "usr/local/include/python3.11/tool/tool.h" in files
    assert files[f"{SITE}/tool-1.0.dist-info/INSTALLER"] == b"moet\n"
    with tarfile.open(tmp_path / "t.tar.gz") as tar:
        assert tar.getmember("usr/local/bin/tool").mode == 0o755
        assert tar.getmember("usr/local/bin/tool-run").mode == 0o755


def test_record_is_true(tmp_path: Path, tool: Path) -> None:
    assert build(tmp_path, [tool]) == 0
    files = contents(tmp_path)
    record = f"{SITE}/tool-1.0.dist-info/RECORD"
    rows = {row[0]: row for row in csv.reader(io.StringIO(files[record].decode()))}
    listed = {str(Path("/", SITE, path).resolve()).lstrip("/") for path in rows}
    assert listed == files.keys()
    for path, row in rows.items():
        if row[1]:
            data = files[str(Path("/", SITE, path).resolve()).lstrip("/")]
            assert ",".join(row) == testing.record_row(path, data)
    assert json.loads((tmp_path / "t.records.json").read_text())[record] == files[record].decode()


def test_order_and_folder_do_not_matter(tmp_path: Path, tool: Path) -> None:
    other = testing.wheel(tmp_path, "another", {"another.py": b"x = 1\n"})
    results = []
    for name, wheels in ("a", [tool, other]), ("b", [other, tool]):
        folder = tmp_path / name
        folder.mkdir()
        moved = [Path(folder, w.name) for w in wheels]
        for source, dest in zip(wheels, moved, strict=True):
            dest.write_bytes(source.read_bytes())
        assert build(folder, moved) == 0
        endings = (".tar.gz", ".json", ".files.json", ".records.json")
        results.append([(folder / f"t{ending}").read_bytes() for ending in endings])
    assert results[0] == results[1]


def test_dropped_files_leave_record_too(tmp_path: Path, tool: Path) -> None:
    assert build(tmp_path, [tool], "--drop", "usr/local/share/tool/*") == 0
    files = contents(tmp_path)
    assert "usr/local/share/tool/doc" not in files
    assert b"share/tool/doc" not in files[f"{SITE}/tool-1.0.dist-info/RECORD"]


def test_stale_drop_glob(tmp_path: Path, tool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(tmp_path, [tool], "--drop", "usr/share/nothing/*") == 1
    assert "nothing matches the drop glob usr/share/nothing/*" in capsys.readouterr().err
    assert not (tmp_path / "t.tar.gz").exists()


def test_two_wheels_one_path(tmp_path: Path, tool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = testing.wheel(tmp_path, "other", {"tool/__init__.py": b"other"})
    assert build(tmp_path, [tool, other]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert f"/{SITE}/tool/__init__.py: installed by other-1.0 and by tool-1.0 with different bytes" in error
    assert not (tmp_path / "t.tar.gz").exists()


_LIMITED = """
import resource, signal, sys
from images.oci import wheel_layer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
sys.exit(wheel_layer.main(sys.argv[1:]))
"""


def test_a_disk_that_takes_no_more(tmp_path: Path, tool: Path) -> None:
    out = tmp_path / "t"
    command = [sys.executable, "-c", _LIMITED, "--name", "t", "--mtime", "1767225600", "--out", str(out), str(tool)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"layer t: {out}.tar.gz: File too large\n"
    assert not list(tmp_path.glob("t.*"))


def test_not_a_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad-1.0-py3-none-any.whl"
    bad.write_bytes(b"no zip")
    assert build(tmp_path, [bad]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
