"""The second build, which the tests of this folder share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import elsewhere


@pytest.fixture(scope="session")
def other() -> Iterator[elsewhere.Elsewhere]:
    """A copy of the tree with an empty output base and no network."""
    with elsewhere.elsewhere(Path("bazelw").resolve().parent) as made:
        yield made
