"""The table in kernels/README.md is that of the libraries, the gates and the receipts of this tree."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernels import overview

ABOUT = json.loads(os.environ["ABOUT"])
LIBRARIES = [Path(path) for path in os.environ["LIBRARIES"].split()]


def kernel(registers: int, matrix: int) -> dict[str, Any]:
    return {
        "registers": registers,
        "static_shared": 0,
        "dynamic_shared": 1025,
        "blocks_a_multiprocessor": 2,
        "matrix_instructions": matrix,
        "instructions": {"QMMA.SF.16832": matrix} if matrix else {"FADD": 1},
    }


GATE = {"coverage_percent": 82, "kernels": {"gemv<0>": kernel(48, 20), "gemv<1>": kernel(168, 0)}}
RECEIPT: dict[str, Any] = {
    "date": "2026-11-29",
    "machine": {"gpu": "NVIDIA H200"},
    "families": {
        "gemv": {
            "library_sha256": "aa",
            "tests": {"passed": 9},
            "racecheck": {"passed": 4},
            "bench": {"rows": [{"share": 0.2, "dependent share": 0.94}, {"share": 0.5}]},
        }
    },
}


def row(library: str, *recorded: tuple[str, dict[str, Any]]) -> str:
    found = [overview.Family("gemv", "a product", "rounding", library)]
    lines = overview.table(found, {"gemv": GATE}, recorded).splitlines()
    assert lines[-1] == "| gemv | 2 | 48 to 168 | 2 | 2 | QMMA 0 to 20 | 82 % |"
    return lines[2]


def test_page_is_current() -> None:
    expected = overview.current(Path(), ABOUT, LIBRARIES)
    assert overview.PAGE.read_text() == expected, "the table is not current: run bazel run //kernels:overview"


def test_what_ran() -> None:
    assert row("aa", ("2026-11-29-h200", RECEIPT)) == (
        "| [gemv](gemv/README.md) | a product | rounding "
        "| [NVIDIA H200, 2026-11-29](../docs/evidence/kernels/2026-11-29-h200.md) "
        "| 9 tests, 4 racecheck | 50% to 94%, median 72% |"
    )


def test_a_receipt_of_another_build_is_said() -> None:
    assert "h200.md), an earlier build |" in row("bb", ("2026-11-29-h200", RECEIPT))
    newer = copy.deepcopy(RECEIPT)
    newer["families"]["gemv"]["library_sha256"] = "bb"
    assert "2026-11-30-h200.md) |" in row("bb", ("2026-11-29-h200", RECEIPT), ("2026-11-30-h200", newer))
    assert "2026-11-29-h200.md) |" in row("aa", ("2026-11-29-h200", RECEIPT), ("2026-11-30-h200", newer))


def test_nothing_ran() -> None:
    assert row("aa").endswith("| rounding | nothing yet |  |  |")


@pytest.mark.parametrize("page", ["", overview.BEGIN, f"{overview.END}\n{overview.BEGIN}\n"])
def test_a_page_without_the_marks(page: str) -> None:
    with pytest.raises(ValueError, match="expected one line"):
        overview.replaced(page, "")


def test_marks_twice() -> None:
    once = f"{overview.BEGIN}\n{overview.END}\n"
    assert overview.replaced(once, "a") == f"{overview.BEGIN}\na\n{overview.END}\n"
    with pytest.raises(ValueError, match="expected one line"):
        overview.replaced(once + once, "a")
