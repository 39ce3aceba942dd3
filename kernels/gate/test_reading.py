import doctest
from pathlib import Path
from types import ModuleType

import pytest

from kernels.gate import disassembly, facts, occupancy, record


@pytest.mark.parametrize("module", [disassembly, facts, occupancy, record])
def test_examples(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried and not failed


def test_predicates_and_other_lines() -> None:
    listing = "\n".join([
        '\t.section\t.text.a,"ax",@progbits',
        "        /*0000*/                   LDC R1, c[0x0][0x37c] ;",
        "        /*0010*/              @!P4 LDG.E.128 R24, desc[UR8][R6.64] ;",
        "        /*0020*/              @!UP0 UBLKCP.S.G [UR8], [UR4], UR6 ;",
        ".L_x_1:",
        "\t.word\t0x00000000",
        '\t.section\t.text.b,"ax",@progbits',
        "        /*0000*/              @P0 EXIT ;",
    ])
    assert disassembly.instructions(listing) == {"a": ["LDC", "LDG.E.128", "UBLKCP.S.G"], "b": ["EXIT"]}


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "expected"),
    [
        (1536, 32, 0, 1),
        (1024, 64, 0, 1),
        (1024, 65, 0, 0),
        (32, 16, 0, 24),
        (128, 40, 49 * 1024, 2),
        (128, 40, 49 * 1024 + 1, 1),
        (128, 40, 99 * 1024, 1),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, expected: int) -> None:
    assert occupancy.blocks(threads, registers, shared) == expected


def test_kernels_and_launch_table_must_match() -> None:
    table = [facts.Fact("gemm", 0, 640, 0, 0), facts.Fact("gemm", 1, 640, 0, 0)]
    symbols = [f"_ZN4moet4gemmILi{form}EEEvv" for form in (0, 1)]
    assert facts.match(table, symbols)[symbols[1]].form == 1
    with pytest.raises(facts.FactsError, match="gemmILi1EEEvv: 0 entries in the launch table"):
        facts.match(table[:1], symbols)
    with pytest.raises(facts.FactsError, match="gemm<1>: no such kernel"):
        facts.match(table, symbols[:1])


def test_differences_name_what_came_and_went() -> None:
    old = {"kernels": {"a": {"registers": 40, "instructions": {"STL": 1}}}}
    new = {"kernels": {"a": {"registers": 40, "instructions": {"QMMA": 8}}}}
    assert record.differences(old, new) == [
        "kernels: a: instructions: STL: 1 on record, nothing now",
        "kernels: a: instructions: QMMA: nothing on record, 8 now",
    ]


def test_no_record(tmp_path: Path) -> None:
    assert record.read(tmp_path / "gate.json") == {}
