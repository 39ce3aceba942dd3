"""The self-test that runs before the server: which families, in which order, and what becomes of each result."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.manifest import model
from serving.runtime import fake_image, selftest
from serving.runtime.switches import StepState

# Stands for moet_kernels.selftest: leaves its arguments, says a line, prints RESULT, and exits with STATUS.
MODULE = """
import os, sys
open(os.environ["SEEN"], "w").write(" ".join(sys.argv[1:]) + "\\n" + os.environ.get("VLLM_MOET_SELFTEST", "unset"))
print("noise")
print("moet: selftest: a line", file=sys.stderr)
print(os.environ["RESULT"])
sys.exit(int(os.environ["STATUS"]))
"""

Run = Callable[..., bool]


def step(name: str, kernels: tuple[str, ...], live: bool | None, switch: bool = True) -> StepState:
    variable = "VLLM_MOET_" + name.upper() if switch else None
    words = ("why", variable, "0" if switch else "1", "rounding", "//some:test", "when", ())
    return StepState(model.Step(1, name, *words, kernels), live, None)  # type: ignore[arg-type]


STEPS = [
    step("off", ("moe", "gemv"), live=False),
    step("none", (), live=True),
    step("on", ("gemv",), live=True),
    step("more", ("gemm", "gemv"), live=True),
]


def document(**families: bool) -> str:
    results = [{"family": family, "ok": ok} for family, ok in families.items()]
    return json.dumps({"error": None, "ok": all(families.values()), "results": results})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the self-test of some steps with an interpreter whose moet_kernels.selftest says `result`."""
    (tmp_path / "moet_kernels").mkdir()
    (tmp_path / "moet_kernels/selftest.py").write_text(MODULE)

    def call(result: str, steps: Any = STEPS, status: int = 0, python: str = fake_image.python()) -> bool:
        environment = {
            "PYTHONPATH": str(tmp_path),
            "RESULT": result,
            "SEEN": str(tmp_path / "seen"),
            "STATUS": str(status),
            model.SELFTEST: "1",
        }
        return selftest.run(steps, python, environment)

    return call


def test_families_of_live_steps_come_first(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(document(gemv=True, gemm=True, moe=True))
    arguments, variable = (tmp_path / "seen").read_text().splitlines()
    assert arguments == "--json --family gemv --family gemm --family moe"
    assert variable == "unset"
    assert capfd.readouterr() == ("", "moet: selftest: a line\n")


def test_wrong_family_of_a_live_step_refuses(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert not run(document(gemv=False, gemm=True, moe=True), status=1)
    assert capfd.readouterr().err.splitlines()[1:] == [
        "moet: refused: wrong on this machine: gemv; "
        "to serve with upstream's paths instead: -e VLLM_MOET_ON=0 -e VLLM_MOET_MORE=0"
    ]


def test_wrong_family_of_a_step_that_is_off_warns(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(document(gemv=True, gemm=True, moe=False), status=1)
    assert capfd.readouterr().err.splitlines()[1:] == [
        "moet: warning: wrong on this machine: moe, which no live step uses; leave VLLM_MOET_OFF at 0"
    ]


def test_wrong_family_of_a_step_without_a_switch(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert not run(document(gemv=False), steps=[step("on", ("gemv",), live=True, switch=False)], status=1)
    assert capfd.readouterr().err.endswith("wrong on this machine: gemv; go back to another release\n")


def test_wrong_on_one_of_two_cards(run: Run) -> None:
    results = [{"family": "gemv", "ok": ok} for ok in (True, False)]
    assert not run(json.dumps({"error": None, "results": results}), steps=[step("on", ("gemv",), live=True)])


def test_family_without_a_result_is_wrong(run: Run) -> None:
    assert not run(document(gemv=True, moe=True))


@pytest.mark.parametrize(
    ("result", "status", "why"),
    [
        (json.dumps({"error": "torch sees no GPU", "ok": False, "results": []}), 3, "torch sees no GPU"),
        ("", 1, "it ended with status 1 and no result"),
        ("Segmentation fault", 139, "it ended with status 139 and no result"),
        ("[]", 0, "it ended with status 0 and no result"),
        ('{"error": null}', 0, "it ended with status 0 and no result"),
    ],
)
def test_without_a_result(run: Run, capfd: pytest.CaptureFixture[str], result: str, status: int, why: str) -> None:
    assert not run(result, status=status)
    assert capfd.readouterr().err.splitlines()[1:] == [
        f"moet: refused: the kernels could not be tested: {why}; "
        "without VLLM_MOET_SELFTEST the server starts untested"
    ]


def test_interpreter_that_is_not_there(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert not run("", python="/nowhere/python")
    assert "could not be tested: [Errno 2] No such file or directory" in capfd.readouterr().err


def test_self_test_that_does_not_end(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moet_kernels/selftest.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(selftest, "_TIMEOUT_S", 0.2)
    assert not run("")
    assert "could not be tested: no end in 0.2 s" in capfd.readouterr().err


def test_image_without_kernels(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("", steps=[step("none", (), live=True)], python=sys.executable + "-none")
    assert capfd.readouterr().err == "moet: selftest: no step of this image has kernels: nothing to test\n"
