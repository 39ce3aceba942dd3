"""`moet kvcache` from its command line: one line, one document, an exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.kvcache import wording
from serving.kvcache.fake_tier import FakeTier, set_age
from tools.moet import main as program

Run = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount of this machine's is not what these tests are about."""
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.setattr("serving.kvcache.tier._access_times", lambda descriptor: "every read")


@pytest.fixture
def fake(tmp_path: Path) -> FakeTier:
    fake = FakeTier(tmp_path / "kv").make()
    for number in range(10):
        fake.add(number, hours=10 * number + 1)
    fake.add_temporary(99)
    return fake


def moet(*words: object, status: int = 0) -> None:
    assert program.main(["kvcache", *map(str, words)]) == status


def test_ttl_ends_with_one_line(fake: FakeTier, capsys: Run) -> None:
    moet("ttl", fake.root, "--max-gb", 0.000005, "--dry-run")
    counts = "2 blocks (2.0 kB) unused for 72 h, 4 blocks (4.0 kB) over 5.0 kB, 1 temporary file"
    assert capsys.readouterr() == (f"{fake.root}: would be deleted: {counts}; 4 blocks (4.0 kB) stay\n", "")
    moet("ttl", fake.root, "--max-gb", 0.000005)
    assert capsys.readouterr() == (f"{fake.root}: deleted: {counts}; 4 blocks (4.0 kB) stay\n", "")
    moet("ttl", fake.root)
    nothing = "0 blocks (0 B) unused for 72 h, 0 blocks (0 B) over 200.0 GB, 0 temporary files"
    assert capsys.readouterr() == (f"{fake.root}: deleted: {nothing}; 4 blocks (4.0 kB) stay\n", "")


def test_ttl_as_json(fake: FakeTier, capsys: Run) -> None:
    moet("ttl", fake.root, "--hours", 50.5, "--json")
    assert json.loads(capsys.readouterr().out) == {
        "schema": "moet.kvcache-ttl.v1",
        "directory": str(fake.root),
        "dry_run": False,
        "hours": 50.5,
        "max_bytes": 200 * 10**9,
        "access_times": "every read",
        "unused": {"files": 5, "bytes": 5000},
        "over_cap": {"files": 0, "bytes": 0},
        "temporary": {"files": 1, "bytes": 4},
        "kept": {"files": 5, "bytes": 5000},
        "faults": {"count": 0, "first": []},
    }


def test_stat_has_a_row_a_folder(fake: FakeTier, capsys: Run) -> None:
    other = FakeTier(fake.root / "indexer-fp8", dtype="nvfp4").make()
    other.add(1)
    moet("stat", fake.root)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if "_model_" in line]
    assert [row[:5] for row in rows] == [
        [fake.base, "fp8_ds_mla", "128", "1,000", "B"],
        [f"indexer-fp8/{other.base}", "nvfp4", "128", "1,000", "B"],
    ]
    assert lines[-1] == "11 blocks (11.0 kB) in 2 folders"
    moet("stat", fake.root, "--json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["directory"]) == ("moet.kvcache-stat.v1", str(fake.root))
    first = document["folders"][0]
    assert (first["path"], first["model"], first["blocks"], first["temporary"]) == (fake.base, "/model", 10, 1)
    assert first["block_bytes"] == {"1000": 10}
    assert [each["below_hours"] for each in first["bytes_by_age"]] == [1, 24, 72, 168, None]
    assert sum(each["bytes"] for each in first["bytes_by_age"]) == first["bytes"] == 10_000


def test_faults_are_told_and_the_status_says_so(fake: FakeTier, capsys: Run) -> None:
    cut = FakeTier(fake.root, model="cut\x1b[31m").make()
    cut.add(1, hours=999)
    (fake.root / cut.base / "config.json").write_text("{")
    for verb in ("ttl", "stat"):
        moet(verb, fake.root, status=3)
        captured = capsys.readouterr()
        assert "is not vLLM's" in captured.err
        assert r"cut\x1b[31m" in captured.err
        assert "\x1b" not in captured.err + captured.out


def test_what_cannot_be_deleted_or_read_is_told_and_stays(tmp_path: Path) -> None:
    fake = FakeTier(tmp_path / "kv").make()
    paths = [fake.add(number, hours=100) for number in range(20)]
    closed = fake.add(50, hours=100)
    for path in paths:
        path.parent.chmod(0o555)
    closed.parent.chmod(0o000)
    code = "import sys; sys.path[:] = sys.argv.pop(1).split(':'); from tools.moet import main; sys.exit(main.main())"
    # Root without its capabilities is held to the modes as anybody is.
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*plain, sys.executable, "-c", code, ":".join(sys.path), "kvcache", "ttl", str(fake.root)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        for path in [*paths, closed]:
            path.parent.chmod(0o755)
    assert done.returncode == 3
    assert "deleted: 0 blocks (0 B) unused for 72 h" in done.stdout
    told = [line for line in done.stderr.splitlines() if "mounted" not in line]
    assert [line.endswith(": Permission denied") for line in told] == [True] * 5 + [False]
    assert told[-1] == "and 16 more that could not be read or deleted"
    assert all(path.exists() for path in [*paths, closed])


def test_blocks_of_two_formats_in_one_folder(fake: FakeTier, capsys: Run) -> None:
    fake.add(50, size=1700)
    moet("stat", fake.root, status=3)
    assert "expected one; blocks of another format load as garbage" in capsys.readouterr().out


def test_no_tier_is_one_line(tmp_path: Path, capsys: Run) -> None:
    (tmp_path / "photos").mkdir()
    for verb in ("ttl", "stat"):
        moet(verb, tmp_path / "photos", status=1)
        assert capsys.readouterr().err.startswith(f"moet kvcache {verb}: {tmp_path}/photos: no KV disk tier: expected")


@pytest.mark.parametrize("option", ["--hours", "--max-gb"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "three", ""])
def test_limits_out_of_range(option: str, value: str, tmp_path: Path, capsys: Run) -> None:
    with pytest.raises(SystemExit) as left:
        program.main(["kvcache", "ttl", str(tmp_path), f"{option}={value}"])
    assert left.value.code == 2
    assert f"{value!r}: expected a number above 0" in capsys.readouterr().err


def test_notes_on_mounts_that_hide_uses(fake: FakeTier, monkeypatch: pytest.MonkeyPatch, capsys: Run) -> None:
    monkeypatch.setattr("serving.kvcache.tier._access_times", lambda descriptor: "never")
    moet("ttl", fake.root)
    assert "noatime: a block's age counts from its writing" in capsys.readouterr().err
    monkeypatch.setattr("serving.kvcache.tier._access_times", lambda descriptor: "once a day")
    moet("ttl", fake.root)
    assert capsys.readouterr().err == ""
    moet("ttl", fake.root, "--hours", 24)
    assert "relatime: a block that is in use may look unused for up to 24 h" in capsys.readouterr().err
    assert wording.note_access_times("every read", 1) is None


def test_age_counts_from_the_last_reading(fake: FakeTier, capsys: Run) -> None:
    path = fake.add(70, hours=300)
    set_age(path, 300, read_hours=2)
    moet("ttl", fake.root)
    assert path.exists()
