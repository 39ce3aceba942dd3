"""The preflight's program behind the image's entry point, with the image's own torch."""

import pytest

from serving.preflight import collective_result
from tests.engine.containers import Outcome

pytestmark = pytest.mark.job("all-reduce")


def test_processes_of_the_image_sum(outcome: Outcome) -> None:
    assert outcome.status == 0, outcome.tail()
    found = collective_result.parse(outcome.output.strip(), 2)
    assert found is not None and found.torch, outcome.tail()
    (group,) = found.groups
    assert (group.state, group.bad) == ("done", False), outcome.tail()
    assert outcome.errors.startswith("moet: ") and ": attested, " in outcome.errors
