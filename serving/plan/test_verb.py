import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from serving.plan.made_up import LOG
from tools.moet import main


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree with no release and no profile, and an environment without knobs."""
    tree = tmp_path / "tree"
    (tree / "images").mkdir(parents=True)
    (tree / "bazelw").touch()
    (tree / "CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    for name in ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tree)


def moet(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.main(["plan", "kv", *arguments])
    return status, out.getvalue(), err.getvalue()


def document(*arguments: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = moet("dsv41", *arguments, "--json")
    found: dict[str, Any] = json.loads(out)
    return status, found


def test_given_memory_is_taken_as_it_is() -> None:
    status, found = document("--set=TP=8", "--set=MAX_MODEL_LEN=1048576", "--available-gib=18.9")
    assert status == 0 and found["memory"] == {} and found["over_utilization"] == []
    assert found["formats"][0]["usual"] == found["formats"][0]["least"] == found["formats"][0]["most"]
    assert found["formats"][0]["usual"]["blocks"] == int(18.9 * 2**30) // 230_400


def test_server_that_would_not_start() -> None:
    status, out, _ = moet("dsv41", "--set", "GPU_MEM_UTIL=0.92")
    assert status == 1
    line = next(line for line in out.splitlines() if line.startswith("vLLM would refuse to start"))
    longest = int(line.rpartition("MAX_MODEL_LEN=")[2].split()[0])
    assert moet("dsv41", "--set", "GPU_MEM_UTIL=0.92", "--set", f"MAX_MODEL_LEN={longest}")[0] == 0
    status, out, _ = moet("dsv41", "--set", "TP=1")
    assert status == 1 and "raise GPU_MEM_UTIL or TP" in out


def test_log_takes_the_place_of_published_figures(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("\n".join(LOG))
    status, found = document("--log", str(log))
    terms = found["memory"]["fp8"]["terms"]
    assert status == 0 and [term["usual"] for term in terms] == [84.32, 2.23]
    assert found["memory"]["fp8"]["available"][0] == pytest.approx(0.94 * 94.97 - 84.32 - 2.23)
    out = moet("dsv41", "--log", str(log))[1]
    assert "it states 1,490,870 tokens; reckoned for its memory 1,492,298 (+0.10%)" in out
    log.write_text("\n".join(LOG[:2]))
    assert document("--log", str(log))[1]["formats"][0]["usual"]["tokens"] == 1_492_298


def test_explanation_names_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = moet("dsv41", "--explain")
    assert status == 0
    for text in ("76.6 GiB of experts", "rings of the compressors", "3,057,484", "may be under way", "█"):
        assert text in out


@pytest.mark.parametrize("given", ["--available-gib=0", "--available-gib=x", "--card-gib=-1", "--card-gib=nan"])
def test_size_that_is_none(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main.main(["plan", "kv", "dsv41", given])
    assert error.value.code == 2 and "argument --" in capsys.readouterr().err
