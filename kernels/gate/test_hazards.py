"""The checker must object to code that is wrong, or its silence means nothing. CUBIN (environment) is a real one."""

import os
from pathlib import Path

import pytest
from basalt.asm.cubin import Cubin

from kernels.gate import hazards

CUBIN = Path(os.environ["CUBIN"])
TOOLS = Path(os.environ["TOOLS"])


@pytest.fixture(scope="module")
def checker() -> hazards.Checker:
    return hazards.Checker(TOOLS / "nvidia/cu13/bin")


def test_the_compilers_own_code_is_clean(checker: hazards.Checker) -> None:
    verdicts = checker.check(CUBIN).values()
    assert verdicts
    assert [verdict.errors for verdict in verdicts] == [()] * len(verdicts)
    assert all(verdict.wrong == 0 and verdict.exact > 50 for verdict in verdicts)


def test_shortened_stalls_are_errors(checker: hazards.Checker, tmp_path: Path) -> None:
    cubin = Cubin.load(CUBIN)
    kernel = cubin.kernels[0]
    for index, word in enumerate(cubin.words(kernel)):
        if word.field("stall") > 4:
            cubin.patch_control(index, "stall", 1, kernel)
    cubin.save(tmp_path / "broken.cubin")
    assert checker.check(tmp_path / "broken.cubin")[kernel].errors
