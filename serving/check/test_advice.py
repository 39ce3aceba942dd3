from pathlib import Path

import pytest

from serving.check.advice import Evidence, few_accepted, why_slow
from serving.check.cards import Watch
from serving.check.counters import Counted, between
from serving.check.target import Target
from serving.preflight import made_up
from serving.preflight.host import Host
from serving.probe.api import Api
from serving.probe.attested import Attested, Step
from serving.probe.metrics import Engine, Progress

QUIET = Counted(steps=100, generated=400, drafts=100, accepted=300, preempted=0, cached=0)


def evidence(tmp_path: Path, *given: str, counted: Counted | None = QUIET, launched: bool = True) -> Evidence:
    launch = made_up.subject(tmp_path, *given).launch if launched else None
    report = Attested("dsv41:vllm0.33.0-r2", 9, "0" * 12, (Step(1, "one", True), Step(4, "four", False)))
    target = Target(Api("http://127.0.0.1:1", "m"), "here", True, "dsv41", launch, attested=report)
    return Evidence(target, Watch(Host(sys=tmp_path)), counted, own=400)


def test_a_launch_with_everything_off(tmp_path: Path) -> None:
    given = ("NCCL_P2P_LEVEL=PHB", "SPEC_TOKENS=0", "EXTRA_ARGS=--enforce-eager")
    found = why_slow(evidence(tmp_path, *given), speculation=True)
    says = ["NCCL_P2P_LEVEL is PHB", "SPEC_TOKENS is 0", "--enforce-eager", "VLLM_MOET_MXFP8_GEMV", "off: 4 four"]
    for words, line in zip(says, found, strict=True):
        assert words in line
    assert not any("SPEC_TOKENS" in line for line in why_slow(evidence(tmp_path, *given), speculation=False))


def test_a_launch_with_everything_on(tmp_path: Path) -> None:
    (only,) = why_slow(evidence(tmp_path, "SERVED=1"), speculation=True)
    assert only == "steps of the image that are off: 4 four"


def test_one_card_needs_no_p2p(tmp_path: Path) -> None:
    found = why_slow(evidence(tmp_path, "TP=1", "NCCL_P2P_LEVEL=PHB", "SERVED=1"), speculation=True)
    assert not any("NCCL" in line for line in found)


def test_of_a_server_that_is_only_a_url_the_usual_is_said(tmp_path: Path) -> None:
    found = why_slow(evidence(tmp_path, launched=False, counted=None), speculation=True)
    for words, line in zip(("NCCL_P2P_LEVEL", "switches", "speculation"), found, strict=True):
        assert line.startswith(words)
    # Its counters have drafts, so that there is speculation.
    assert why_slow(evidence(tmp_path, launched=False), speculation=True) == found[:2]


@pytest.mark.parametrize(
    ("counted", "says"),
    [
        (Counted(100, 500, 0, 0, 0, 0), "100 tokens were generated for others"),
        (Counted(100, 400, 0, 0, 2, 0), "2 requests were put off for want of KV blocks"),
    ],
)
def test_what_the_counters_show(counted: Counted, says: str, tmp_path: Path) -> None:
    assert says in why_slow(evidence(tmp_path, "SERVED=1", counted=counted), speculation=True)[0]


def test_accepted_drafts(tmp_path: Path) -> None:
    assert few_accepted(evidence(tmp_path))[0].startswith("3.00 drafted tokens were accepted in a step")
    assert "no drafts were verified" in few_accepted(evidence(tmp_path, counted=Counted(100, 100, 0, 0, 0, 0)))[0]
    assert "is not known" in few_accepted(evidence(tmp_path, counted=None))[0]


def test_counters_between_two_looks() -> None:
    before = Progress((Engine(generation_tokens=5, iterations=10, drafts=1), Engine(iterations=3)))
    after = Progress((Engine(generation_tokens=9, iterations=12, drafts=2), Engine(iterations=7, generation_tokens=1)))
    # Two engines step side by side: the longer count is that of the time.
    assert between(before, after) == Counted(steps=4, generated=5, drafts=1, accepted=0, preempted=0, cached=0)
    assert between(after, before) is None
    assert between(before, Progress(after.engines[:1])) is None
    assert between(None, after) is between(before, None) is None
