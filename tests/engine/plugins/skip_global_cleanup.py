"""A pytest plugin for vLLM's own tests: no clean-up of devices and process groups after each test.

vLLM's conftest does it after every test unless the marker says otherwise, for seconds each; without a GPU there is
nothing to clean.
"""

from collections.abc import Sequence

import pytest


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark every test as vLLM's conftest wants it."""
    for item in items:
        item.add_marker("skip_global_cleanup")
