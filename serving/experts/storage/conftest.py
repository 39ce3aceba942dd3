"""What the tests of the back ends read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.experts.storage import made_up
from serving.experts.storage.reader import Container


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """A container of made_up.TWO_LAYERS, open."""
    made_up.write(tmp_path / "c", made_up.TWO_LAYERS)
    with Container.open(tmp_path / "c") as opened:
        yield opened
