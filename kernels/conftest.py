"""Markers of the tests on a GPU."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sanitizer: short enough to run under compute-sanitizer")
