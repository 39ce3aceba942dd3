import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tools.experts.quantize.made_up import checkpoint, contents
from tools.experts.synthetic.models import MODELS
from tools.experts.synthetic.synthetic import write
from tools.moet import main


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def moet(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.main(["experts", *map(str, arguments)])
    return status, out.getvalue(), err.getvalue()


def document(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(moet(*arguments, "--json")[1])
    return found


@pytest.mark.parametrize("model", MODELS)
def test_from_checkpoint_to_pack_and_back(model: str, tmp_path: Path) -> None:
    write(tmp_path / "m", model, layers=1, experts=2)
    status, out, err = moet("inspect", "m")
    assert status == 0 and "quintal delta" in out
    status, out, err = moet(
        "quantize", "m", "p", "--delta", "quintal", "--report", "r.json", "--threads", "2", "--tag", "t"
    )
    assert status == 0, out
    assert out.count("holds") == 4 and "2 threads" in err and "buffers at most" in err
    rows = json.loads(Path("r.json").read_text())["tensors_one_by_one"]
    assert len(rows) == 6 and rows[0]["canonical"]["levels"] == [-4, -1, 1, 4]
    assert (rows[0]["alternated"] == 1) == ("kimi" in model)
    status, out, err = moet("verify", "p", "--delta", "p-quintal", "--checkpoint", "m", "--check", "0")
    assert status == 0 and out.count("the same bits") == 2 and "sound; 4 records read" in out
    status, out, err = moet("inspect", "p", "--delta", "p-quintal")
    assert status == 0 and "w2-pack t" in out and "quintal-pack" in out and out.count("holds") == 5
    first = MODELS[model].first
    found = document("inspect", "p", "--record", f"{first}:1")
    assert found["record"]["offset"] == (first * 2 + 1) * found["header"]["stride"]
    assert sum(found["record"]["matrices"]["w1"]["codes"]) == 512 * 256
    assert moet("dequantize", "p", "d", "--layers", first)[0] == 0
    assert sorted(one.name for one in Path("d").iterdir())[0] == "config.json"


def test_gate_that_does_not_hold_has_its_own_status(tmp_path: Path) -> None:
    """Evenly spread nibbles are not what the levels are made for."""
    checkpoint(tmp_path / "m")
    status, out, _ = moet("quantize", "m", "p")
    assert status == 3 and "DOES NOT HOLD" in out
    assert moet("verify", "p", "--checkpoint", "m")[0] == 0


def test_documents(tmp_path: Path) -> None:
    checkpoint(tmp_path / "m")
    quantized = document("quantize", "m", "p", "--layers", "1")
    assert quantized["schema"] == "moet.experts.quantize.v1" and quantized["report"]["tensors"] == 9
    assert document("inspect", "m")["bytes"]["2 bits"] == {"expert": 6912, "all": 41472}
    assert document("inspect", "p")["content"] == quantized["content"]
    assert document("verify", "p")["records"] == 3
    assert document("dequantize", "p", "d")["form"] == "bf16"
    failed = document("quantize", "m", "p", "--layers", "1")
    assert failed["schema"] == "moet.error.v1" and failed["exit"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quantize", "none", "p"], "no config.json"),
        (["quantize", "m", "p", "--layers", "9"], "no quantized routed experts in layer 9"),
        (["verify", "m"], "experts.json"),
        (["inspect", "m", "--record", "0:0"], "is a checkpoint"),
        (["inspect", "none"], "none"),
        (["dequantize", "none", "d"], "none"),
        (["inspect", "p", "--record", "0:3"], "no such record"),
        (["verify", "p", "--delta", "p"], "holds w2-pack"),
    ],
)
def test_one_line_says_what_is_wrong(arguments: list[str], message: str, tmp_path: Path) -> None:
    checkpoint(tmp_path / "m")
    if "p" in arguments and arguments[0] != "quantize":
        moet("quantize", "m", "p")
    status, out, err = moet(*arguments)
    lines = [line for line in err.splitlines() if line.startswith("moet experts")]
    assert status == 1 and out == "" and len(lines) == 1 and message in lines[0]


def test_report_that_cannot_be_kept_costs_no_work(tmp_path: Path) -> None:
    """Nor is the pack there without it: the same command with another file goes on."""
    checkpoint(tmp_path / "m")
    (tmp_path / "r").mkdir()
    status, out, err = moet("quantize", "m", "p", "--report", "r")
    assert (status, out) == (1, "") and "r: the report cannot be written (Is a directory)" in err.splitlines()[-1]
    assert not Path("p/experts.json").exists()
    status, out, _ = moet("quantize", "m", "p", "--report", "r.json")
    assert status == 3 and ", 6 experts by an earlier run" in out
    assert len(json.loads(Path("r.json").read_text())["tensors_one_by_one"]) == 18


@pytest.mark.parametrize("given", [["--threads", "0"], ["--layers", "x"], ["--zero-mode", "odd"], ["--delta", "int4"]])
def test_wrong_usage(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main.main(["experts", "quantize", "m", "p", *given])
    assert error.value.code == 2 and given[0] in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_stopped_program_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    """A whole program, stopped as soon as its draft is there."""
    source = checkpoint(tmp_path / "m", layers=4, experts=24, hidden=1024, intermediate=512)
    command = [sys.executable, "-m", "tools.moet.main", "experts", "quantize", str(source), str(tmp_path / "p")]
    command += ["--threads", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        while running.poll() is None and not (tmp_path / "p/draft.counts").exists():
            time.sleep(0.001)
        running.send_signal(number)
        err = running.communicate()[1]
    assert running.returncode in (130, 143, -9, 3), err
    if running.returncode != 3:
        assert not (tmp_path / "p/experts.json").exists()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 3, done.stderr
    assert moet("quantize", source, tmp_path / "whole/p")[0] == 3
    assert contents(tmp_path / "p") == contents(tmp_path / "whole/p")
