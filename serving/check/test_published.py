import pytest

from serving.check import published, speed
from serving.check.published import LOW
from serving.check.result import Figure
from serving.check.subject import Sizes
from serving.profiles import load

LINES = published.load()


@pytest.mark.parametrize("line", LINES)
def test_the_model_s_name_is_the_profile_s(line: str) -> None:
    names = [knob.default for knob in load.load(line).knobs.values() if knob.flag == "--served-model-name"]
    assert names == [LINES[line].model]


@pytest.mark.parametrize("line", LINES)
def test_every_figure_belongs_to_a_check(line: str) -> None:
    usual = {f"{what} x{count}" for what in ("decode prose", "decode code", "prompt") for count in (1, Sizes().streams)}
    for figure in LINES[line].figures:
        assert set(figure.checks) <= usual
        assert figure.figure in ("decode", "steps", "prompt") and figure.unit in ("tokens/s", "steps/s")
    assert {check for one in LINES[line].figures for check in one.checks} <= usual
    assert speed.KINDS.keys() == {"prose", "code"}


def test_low_is_clearly_below() -> None:
    (steps,) = [one for one in LINES["dsv41"].of("decode code x1") if one.figure == "steps"]
    assert published.low(steps, Figure("steps", LOW * steps.served - 0.1, "steps/s"))
    assert not published.low(steps, Figure("steps", LOW * steps.served, "steps/s"))
    said = published.words(steps, Figure("steps", 64.5, "steps/s"), LINES["dsv41"])
    assert said.startswith("here 50 % of what others published: 129 steps/s of vLLM-Moet's dsv41 r26b on 4x RTX ")
