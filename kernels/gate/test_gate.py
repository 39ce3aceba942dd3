"""The machine code of one family is the one on record. REPORT, RECORD and ACCEPT (environment) come from the build."""

import os
from pathlib import Path

from kernels.gate import record

MEASURED = record.read(Path(os.environ["REPORT"]))
RECORDED = record.read(Path(os.environ["RECORD"]))


def test_rules() -> None:
    assert MEASURED["kernels"]
    assert record.violations(MEASURED) == []


def test_as_on_record() -> None:
    changed = record.differences(RECORDED, MEASURED)
    assert not changed, "\n".join(["the machine code changed:", *changed, f"to accept: {os.environ['ACCEPT']}"])
