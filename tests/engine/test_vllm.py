"""The steps' tests on the image and on the image without steps, and vLLM's own tests."""

from collections import Counter

import pytest

from tests.engine import upstream
from tests.engine.containers import Container, DockerRunner, Outcome
from tests.engine.programs import Programs


@pytest.fixture(scope="module")
def step_modules(docker: DockerRunner) -> set[str]:
    """The test modules of the steps, by the steps' names."""
    outcome = docker.run(Container(["steps", "--json"]))
    assert outcome.status == 0, outcome.tail()
    return {f"test_{step['name'].replace('-', '_')}" for step in outcome.json()}


@pytest.mark.job("steps")
def test_every_test_of_the_steps_passes(outcome: Outcome, programs: Programs, step_modules: set[str]) -> None:
    assert outcome.status == 0, outcome.tail(60)
    outcomes = programs.outcomes("steps-report")
    assert set(outcomes.values()) == {"passed"}
    assert {name.partition("::")[0] for name in outcomes} >= step_modules


@pytest.mark.job("steps-on-base")
def test_without_patches_the_steps_fail_and_the_rest_passes(
    outcome: Outcome, programs: Programs, step_modules: set[str]
) -> None:
    failed = {name.partition("::")[0] for name, state in programs.outcomes("base-report").items() if state != "passed"}
    assert failed == step_modules, outcome.tail(60)


@pytest.mark.job("vllm")
def test_vllms_own_tests_pass(outcome: Outcome, programs: Programs) -> None:
    assert outcome.status == 0, outcome.tail(60)
    assert Counter(programs.outcomes("vllm-report").values())["passed"] >= upstream.PASSED
