"""Two folders, two output bases, two environments, one set of bytes.

The first build is the one that this test depends on; the second happens here, from an empty output
base and with the network cut. TARGETS (environment) lists `target=output path` pairs.
"""

import os
from pathlib import Path

import pytest

from tests import elsewhere

PAIRS = dict(pair.split("=", 1) for pair in os.environ["TARGETS"].split())


@pytest.fixture(scope="module")
def second(other: elsewhere.Elsewhere) -> Path:
    """The folder of the second build's outputs."""
    return other.build(*PAIRS)


@pytest.mark.parametrize("target", PAIRS)
def test_same_bytes(target: str, second: Path) -> None:
    first = elsewhere.digests(Path(PAIRS[target]).resolve())
    assert first
    assert elsewhere.digests(second / PAIRS[target]) == first
    for path, digest in sorted(first.items()):
        print(f"{target} {path} {digest}")
