"""The steps' tests on the image and on the image without steps, and vLLM's own tests."""

import pytest

from tests.engine import upstream
from tests.engine.containers import Outcome
from tests.engine.programs import Programs


@pytest.mark.job("steps")
def test_steps_pass_on_the_image(outcome: Outcome, programs: Programs) -> None:
    assert outcome.status == 0, outcome.tail(60)
    assert set(programs.outcomes("steps-report").values()) == {"passed"}


@pytest.mark.job("steps-on-base")
def test_steps_fail_without_their_patches_and_the_rest_passes(outcome: Outcome, programs: Programs) -> None:
    outcomes = programs.outcomes("base-report")
    failed = {name for name, state in outcomes.items() if state != "passed"}
    assert failed, outcome.tail(60)
