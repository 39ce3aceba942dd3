"""The series of this tree, as they are."""

import datetime
from pathlib import Path

import pytest

from patches.tools import lint, place, steps, wheels
from tools.cli.output import Output

# Runfiles are links into the working tree.
ROOT = Path("bazelw").resolve().parent
LINE = "dsv41"
MANIFEST = Path(f"images/{LINE}/manifest.json")


def test_the_series_of_the_line_has_no_problem() -> None:
    found = place.find(ROOT, line=LINE)
    with wheels.pinned(found, Output()) as wheel:
        errors = [finding for finding in lint.lint(found, wheel, datetime.date.today()) if finding.error]
    assert errors == []


@pytest.mark.skipif(not MANIFEST.is_file(), reason="Bazel builds it")
def test_steps_read_from_the_line_are_those_that_bazel_builds() -> None:
    read = place.find(ROOT, line=LINE).steps
    assert read == tuple(steps.of_manifest(MANIFEST))
    assert read
