"""The headers, the face and the oracle have the same limits and the same layout."""

import ast
import re
from pathlib import Path

from kernels.p2p_allreduce import reference

FOLDER = Path(__file__).parent
HEADERS = ("launch.h", "workspace.cuh", "simple.cuh", "ll.cuh", "ll_words.cuh")
# By name in the headers, of what the oracle has.
SHARED = {
    "kMostRanks": reference.MOST_RANKS,
    "kMostBytes": reference.MOST_BYTES,
    "kMostLLBytes": reference.LL_BYTES,
    "kUnitBytes": reference.UNIT_BYTES,
    "kMostBlocks": reference.MOST_BLOCKS,
    "kSimpleUnitsABlock": reference.SIMPLE_UNITS_A_BLOCK,
    "kLLUnitsABlock": reference.LL_UNITS_A_BLOCK,
    "kSector": reference.SECTOR,
    "kTold": reference.TOLD,
    "kRounds": reference.ROUNDS,
    "kArrivals": reference.ARRIVALS,
    "kData": reference.DATA,
}


def product(text: str) -> int:
    result = 1
    for factor in text.split("*"):
        result *= int(factor)
    return result


def test_headers() -> None:
    text = "".join((FOLDER / name).read_text() for name in HEADERS)
    found = dict(re.findall(r"\b(k[A-Z]\w+) = (\d[\d *]*)[;,]", text))
    assert {name: product(found[name]) for name in SHARED} == SHARED


def test_ages() -> None:
    """Of the same period, which must be even, for rounds of both parities, and less than the bits of a word count."""
    found = re.search(r"kRoundsBetweenAgings = 1 << (\d+);", (FOLDER / "ll_words.cuh").read_text())
    assert found is not None and 1 << int(found[1]) == reference.ROUNDS_BETWEEN_AGINGS
    assert reference.ROUNDS_BETWEEN_AGINGS % 2 == 0 and reference.ROUNDS_BETWEEN_AGINGS < 2**32


def test_types() -> None:
    listed = re.search(r"enum class Type : int \{ (.*?) \}", (FOLDER / "launch.h").read_text())
    assert listed is not None
    named = {"kBfloat16": "bfloat16", "kHalf": "float16", "kFloat": "float32"}
    assert {named[one]: at for at, one in enumerate(listed[1].split(", "))} == reference.TYPES


def test_face() -> None:
    tree = ast.parse((FOLDER / "op.py").read_text())
    assigned = {ast.unparse(n.targets[0]): ast.unparse(n.value) for n in tree.body if isinstance(n, ast.Assign)}
    assert product(assigned["MOST_BYTES"]) == reference.MOST_BYTES
    assert product(assigned["LL_BYTES"]) == reference.LL_BYTES
    assert int(assigned["UNIT_BYTES"]) == reference.UNIT_BYTES
    assert int(assigned["TOLD"]) == reference.TOLD
    assert ast.literal_eval(assigned["(LEAST_RANKS, MOST_RANKS)"]) == (2, reference.MOST_RANKS)
