"""Two folders, two output bases, two environments, no network: one set of bytes of every family.

The first build is the one that this test depends on. TARGETS (environment) lists `target=output path` pairs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import elsewhere

PAIRS = dict(pair.split("=", 1) for pair in os.environ["TARGETS"].split())


@pytest.fixture(scope="module")
def second() -> Iterator[Path]:
    """The folder of the second build's outputs."""
    with elsewhere.elsewhere(Path("bazelw").resolve().parent) as made:
        yield made.build(*PAIRS)


@pytest.mark.parametrize("target", PAIRS)
def test_same_bytes(target: str, second: Path) -> None:
    first = elsewhere.digests(Path(PAIRS[target]).resolve())
    assert first
    assert elsewhere.digests(second / PAIRS[target]) == first
    for path, digest in sorted(first.items()):
        print(f"{target} {path} {digest}")
