import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.experts.placement import counts
from serving.experts.placement.problem import PlanError


def read(tmp_path: Path, value: Any, split: str = "train") -> counts.Counts:
    path = tmp_path / "counts.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return counts.read_json(path, split)


def test_both_forms(tmp_path: Path) -> None:
    found = read(tmp_path, {"train": {"decode": {"4": [1, 2], "3": [3, 4]}, "prefill": {"3": [5, 6], "4": [7, 8]}}})
    assert found.layers == (3, 4) and found.phases["decode"].tolist() == [[3, 4], [1, 2]]
    assert found.phases["prefill"].tolist() == [[5, 6], [7, 8]] and found.experts == 2
    found = read(tmp_path, {"10": {"counts": [1, 2, 3], "tokens": 6}, "9": {"counts": [4, 5, 6.0]}})
    assert found.layers == (9, 10) and found.phases["all"].tolist() == [[4, 5, 6], [1, 2, 3]]


def test_other_splits_are_named(tmp_path: Path) -> None:
    value = {"train": {"decode": {"0": [1, 2]}}, "test": {"decode": {"0": [3, 4]}}}
    assert "'test' left aside; 'train' is read" in read(tmp_path, value).notes[0]
    assert read(tmp_path, value, "test").phases["decode"].tolist() == [[3, 4]]
    (note,) = read(tmp_path, {**value, "a\nb" * 999: 1}).notes
    assert "\n" not in note and len(note) < 400


def test_a_split_of_what_has_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"counts\.json: has one set of counts, and no split 'test'; leave the split out"
    ):
        read(tmp_path, {"0": {"counts": [1, 2]}}, "test")


def test_shares_are_normalised_by_layer_and_phase(tmp_path: Path) -> None:
    found = read(tmp_path, {"train": {"decode": {"0": [10, 30]}, "prefill": {"0": [9000, 1000]}}})
    weights = {"decode": 1.0, "prefill": 0.25}
    assert counts.shares(found, weights)[0].tolist() == pytest.approx(
        [(0.25 + 0.25 * 0.9) / 1.25, (0.75 + 0.025) / 1.25]
    )
    assert counts.shares(found, {"decode": 1.0})[0].tolist() == [0.25, 0.75]
    with pytest.raises(PlanError, match="none above 0 for decode, prefill"):
        counts.shares(found, {"other": 1.0})


@given(st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3).filter(any), min_size=1, max_size=5))
@settings(max_examples=60)
def test_shares_sum_to_one(rows: list[list[int]]) -> None:
    found = counts.Counts(tuple(range(len(rows))), {"all": np.array(rows, np.int64)})
    assert counts.shares(found, {"decode": 1.0}).sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "expected routing counts, found list"),
        ("{}", "found the keys nothing"),
        ('{"data": 1}', "found the keys 'data'"),
        ('{"train": {}}', "has no phase"),
        ('{"train": {"decode": {}}}', "has no layers"),
        ('{"train": {"warmup": {"0": [1]}}}', "expected the phases decode and prefill, found 'warmup'"),
        (
            '{"train": {"decode": {"0": [1, NaN]}}}',
            "phase decode, layer 0, expert 1: expected a whole number, found NaN",
        ),
        ('{"train": {"decode": {"0": [1, Infinity]}}}', "layer 0, expert 1: expected a whole number, found Infinity"),
        ('{"train": {"decode": {"0": [1, 1e400]}}}', "layer 0, expert 1: expected a whole number, found Infinity"),
        ('{"0": {"counts": [1, -2]}}', "layer 0, expert 1: is negative"),
        ('{"0": {"counts": [1, 0.5]}}', "layer 0, expert 1: expected a whole number, found 0.5"),
        ('{"0": {"counts": [1, true]}}', "layer 0, expert 1: expected a whole number, found true"),
        ('{"0": {"counts": [1, "2"]}}', "layer 0, expert 1: expected a whole number"),
        ('{"0": {"counts": [1, null]}}', "layer 0, expert 1: expected a whole number, found null"),
        ('{"0": {"counts": [9223372036854775808, 1]}}', "layer 0, expert 0: overflows 64 bits"),
        ('{"0": {"counts": [1e300, 1]}}', "layer 0, expert 0: overflows 64 bits"),
        (f'{{"0": {{"counts": [{2**61}, {2**61}]}}}}', "layer 0: its counts overflow 64 bits"),
        ('{"0": {"counts": []}}', "layer 0: expected a list of counts"),
        ('{"0": {"counts": {"0": 1}}}', "layer 0: expected a list of counts"),
        ('{"0": {"count": [1]}}', "layer 0: counts is missing"),
        ('{"0": [1, 2]}', "layer 0: expected"),
        ('{"0": {"counts": [1, 2]}, "1": {"counts": [1]}}', "layer 1: has 1 experts, layer 0 has 2"),
        ('{"0": {"counts": [1]}, "0": {"counts": [2]}}', "'0' is there twice"),
        ('{"1": {"counts": [1]}, "01": {"counts": [2]}}', "layer 1 is there twice, as '1' and '01'"),
        ('{"train": {"decode": {"a": [1]}}}', "layer 'a': expected a number"),
        ('{"train": {"decode": {"0": [1]}, "prefill": {"1": [1]}}}', "phase prefill has other layers or experts"),
        ('{"train": {"decode": {"0": [1]}, "decode": {"0": [1]}}}', "'decode' is there twice"),
        (f'{{"0": {{"counts": [1, {"9" * 5000}]}}}}', "layer 0, expert 1: overflows 64 bits"),
        (f'{{"train": {{"decode": {{"0": [1, -{"9" * 5000}]}}}}}}', "layer 0, expert 1: overflows 64 bits"),
        ('{"a\\nb": 1}', r"found the keys 'a\nb'"),
        (f'{{"{"x" * 9999}": 1}}', "found the keys 'xxx"),
        (f'{{"0": {{"counts": [1, "{"x" * 9999}"]}}}}', "layer 0, expert 1: expected a whole number, found "),
        (f'{{"train": {{"{"x" * 9999}": {{"0": [1]}}}}}}', "expected the phases decode and prefill, found 'xxx"),
        (f'{{"train": {{"decode": {{"{"x" * 9999}": [1]}}}}}}', "expected a number"),
        (f'{{"train": {{"decode": {{"{"x" * 9999}": 1, "{"x" * 9999}": 1}}}}}}', "is there twice"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        read(tmp_path, text)
    assert words in str(error.value) and str(tmp_path / "counts.json") in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_layers_of_the_model(tmp_path: Path) -> None:
    found = read(tmp_path, {str(layer): {"counts": [layer, 1]} for layer in (0, 1, 2)})
    placed = counts.on_layers(found, (3, 4, 5), 2, "c")
    assert placed.layers == (3, 4, 5) and placed.phases["all"][:, 0].tolist() == [0, 1, 2]
    assert "layers 0 to 2 are taken as the model's 3 to 5" in placed.notes[0]
    # In the model's order, steps as well.
    steps = np.arange(12).reshape(2, 3, 2)
    turned = counts.on_layers(counts.Counts((0, 1, 2), found.phases, steps), (2, 0, 1), 2, "c")
    assert turned.phases["all"][:, 0].tolist() == [2, 0, 1] and turned.windows is not None
    assert turned.windows.tolist() == steps[:, [2, 0, 1]].tolist() and not turned.notes
    with pytest.raises(PlanError, match=r"c: lacks layers 3; the model has 4: 0, 1, 2, 3"):
        counts.on_layers(found, (0, 1, 2, 3), 2, "c")
    with pytest.raises(PlanError, match=r"lacks layers 3, 5; has no such 0"):
        counts.on_layers(found, (1, 2, 3, 5), 2, "c")
    with pytest.raises(PlanError, match="c: expected 3 experts a layer, found 2"):
        counts.on_layers(found, (0, 1, 2), 3, "c")


def test_layer_of_zeros_is_named_with_its_phase(tmp_path: Path) -> None:
    found = read(tmp_path, {"train": {"decode": {"0": [1, 2], "1": [0, 0]}, "prefill": {"0": [1, 0], "1": [1, 1]}}})
    with pytest.raises(PlanError, match="layer 1, phase decode: all 2 counts are zero"):
        counts.shares(found, {"decode": 1.0, "prefill": 0.25})
    assert counts.shares(found, {"prefill": 0.25}).tolist() == [[1, 0], [0.5, 0.5]]
