"""Trees that the tests of releases work on."""

from pathlib import Path

import pytest

from releases.testing.toy import Toy


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("released") / "toy"
    toy = Toy(root)
    toy.release(base=True)
    toy.release()
    return root


@pytest.fixture
def toy(released: Path, tmp_path: Path) -> Toy:
    """A tree with two releases, r0 and r1, that `release check` has nothing to say about."""
    return Toy.copied(released, tmp_path / "toy")


@pytest.fixture
def fresh(tmp_path: Path) -> Toy:
    """A tree without releases."""
    return Toy(tmp_path / "toy")
