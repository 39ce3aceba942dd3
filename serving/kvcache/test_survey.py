"""Size, age and format, folder by folder."""

import time
from pathlib import Path

import pytest

from serving.kvcache import survey, tier, wording
from serving.kvcache.fake_tier import FakeTier, Silent
from serving.kvcache.survey import Survey
from tools.cli.output import Output


def look(root: Path) -> list[Survey]:
    with tier.opened(root) as opened:
        return survey.surveys(opened, time.time(), Silent())


def test_ages_sizes_and_formats(tmp_path: Path) -> None:
    here = FakeTier(tmp_path).make()
    there = FakeTier(tmp_path / "indexer-fp8", dtype="nvfp4", size=2000).make()
    for number, hours in enumerate((0, 0.5, 1.5, 23, 25, 100, 170, 500)):
        here.add(number, hours)
    there.add(1, 30)
    there.add_temporary(2)
    first, second = look(tmp_path)
    assert (first.folder.path, first.folder.config.dtype) == (here.base, "fp8_ds_mla")
    assert (first.blocks, first.size, dict(first.sizes), first.temporary) == (8, 8000, {1000: 8}, 0)
    assert first.by_age == [2000, 2000, 1000, 1000, 2000]
    assert first.newest is not None and first.newest < 0.1
    assert first.oldest is not None and 499.9 < first.oldest < 500.1
    assert (second.folder.path, second.folder.config.dtype) == (f"indexer-fp8/{there.base}", "nvfp4")
    assert (second.blocks, second.size, second.temporary, second.by_age) == (1, 2000, 1, [0, 0, 2000, 0, 0])


def test_folder_without_blocks(tmp_path: Path) -> None:
    FakeTier(tmp_path).make()
    (empty,) = look(tmp_path)
    assert (empty.blocks, empty.size, empty.oldest, empty.newest) == (0, 0, None, None)


def test_two_sizes_in_one_folder_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeTier(tmp_path).make()
    for number in range(5):
        fake.add(number, size=1500 if number == 4 else None)
    wording.show_surveys(look(tmp_path), Output())
    assert f"{fake.base}: blocks of 2 sizes (4 of 1,000 B, 1 of 1,500 B): expected one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (114_688, "114.7 kB"),
        (2 * 10**11, "200.0 GB"),
        (10**15, "1,000.0 TB"),
    ],
)
def test_sizes_in_words(count: int, words: str) -> None:
    assert wording.size(count) == words
