"""Each rule of the gate, broken on its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.gate import disassembly, facts, hazards, report

FACT = facts.Fact("gemv", 0, threads=256, dynamic_shared=40 * 1024, mma=2)
USED = disassembly.Resources(registers=64, stack=0, shared=1024 + 256, local=0)
NAMES = ["LDG.E.128", "ACQBULK", "QMMA.SF.16832.F32", "LDG.E", "QMMA.SF.16832.F32", "EXIT"]
VERDICT = hazards.Verdict(errors=(), warnings=("a lead",), incomplete=False, exact=5, refused=1, wrong=0)


def kernel(
    fact: facts.Fact = FACT,
    used: disassembly.Resources = USED,
    names: list[str] = NAMES,
    verdict: hazards.Verdict = VERDICT,
) -> dict[str, Any]:
    return report.kernel("symbol", fact, "digest", used, names, verdict)


def test_a_sound_kernel() -> None:
    result = kernel()
    assert result["violations"] == []
    assert (result["static_shared"], result["dynamic_shared"]) == (256, 40 * 1024)
    assert (result["blocks_a_multiprocessor"], result["warps_a_multiprocessor"]) == (2, "16/48")
    assert (result["loads_before_wait"], result["matrix_instructions"]) == (1, 2)
    assert result["hazards_suspected"] == ["a lead"]


BROKEN: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("1 accesses of local memory; expected none", lambda: kernel(names=[*NAMES, "STL.64"])),
    ("8 bytes of stack and 0 of local memory; expected none", lambda: kernel(used=replace(USED, stack=8))),
    ("2 matrix instructions; the launch table plans 3", lambda: kernel(fact=replace(FACT, mma=3))),
    ("1 matrix instructions; the launch table plans 2", lambda: kernel(names=NAMES[:3])),
    (
        "101632 bytes of shared memory a block; sm_120 has 101376",
        lambda: kernel(fact=replace(FACT, dynamic_shared=99 * 1024)),
    ),
    ("no block fits on a multiprocessor of sm_120", lambda: kernel(fact=replace(FACT, threads=1024), used=wide())),
    ("no wait for the kernel ahead, which dependent launches need", lambda: kernel(names=without_wait())),
    ("a stall is short", lambda: kernel(verdict=replace(VERDICT, errors=("a stall is short",)))),
    ("1 instruction words that basalt assembles to other bits", lambda: kernel(verdict=replace(VERDICT, wrong=1))),
]


def wide() -> disassembly.Resources:
    return replace(USED, registers=128)


def without_wait() -> list[str]:
    return [name for name in NAMES if name != disassembly.WAIT]


@pytest.mark.parametrize(("violation", "broken"), BROKEN, ids=[violation for violation, _ in BROKEN])
def test_a_broken_rule(violation: str, broken: Callable[[], dict[str, Any]]) -> None:
    assert violation in broken()["violations"]
