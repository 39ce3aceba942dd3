from dataclasses import replace

import pytest

from serving.control.candidate import settings_of
from serving.control.made_up import generation
from serving.generations.generation import Generation, knobs
from serving.launch import settings
from serving.launch.plan import plan
from serving.profiles import load
from serving.profiles.model import Profile
from tools.cli.errors import UserError

IMAGE = "dsv41:vllm0.33.0-r1"


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load.load("dsv41")


def recorded(profile: Profile, *given: str, environment: dict[str, str] | None = None) -> Generation:
    found = settings.resolve(profile, ["MODEL_DIR=/models/a b", *given], environment or {})
    launch = plan(found, IMAGE, None, "published").launch
    return generation(1, knobs=knobs(found, IMAGE, "newest release"), launch=launch)


def test_recorded_knobs_make_the_same_launch_again(profile: Profile) -> None:
    one = recorded(
        profile,
        "SERVED=1",
        "INDEXER_KV_DTYPE=mxfp4",
        "EXTRA_ARGS=--seed '1 2'",
        "GPUS=3,2,1,0",
        "GPU_MEM_UTIL=0.9",
        environment={"MAX_NUM_SEQS": "16"},
    )
    again = settings_of(profile, one)
    assert plan(again, IMAGE, None, "published").launch == one.launch
    assert {knob.name for knob in one.explicit} == {
        "MODEL_DIR",
        "SERVED",
        "INDEXER_KV_DTYPE",
        "EXTRA_ARGS",
        "GPUS",
        "GPU_MEM_UTIL",
        "MAX_NUM_SEQS",
    }


def test_environment_of_today_has_no_say(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    one = recorded(profile)
    monkeypatch.setenv("MAX_NUM_SEQS", "64")
    assert settings_of(profile, one).by_name["MAX_NUM_SEQS"].text == "8"


def test_default_that_the_profile_changed_since_stays_as_it_was(profile: Profile) -> None:
    one = recorded(profile)
    moved = replace(profile.knobs["MAX_MODEL_LEN"], default=4096)
    today = replace(profile, knobs={**profile.knobs, "MAX_MODEL_LEN": moved})
    assert plan(settings_of(today, one), IMAGE, None, "published").launch == one.launch


def test_switch_is_set_beside_what_was_set(profile: Profile) -> None:
    one = recorded(profile, "VLLM_MOET_SKINNY_GEMM=1", "VLLM_MOET_MOE_FRONT=1")
    found = settings_of(profile, one, ["VLLM_MOET_SKINNY_GEMM=0"])
    environment = plan(found, IMAGE, None, "published").launch.environment
    assert (environment["VLLM_MOET_SKINNY_GEMM"], environment["VLLM_MOET_MOE_FRONT"]) == ("0", "1")
    assert plan(found, IMAGE, None, "published").launch == replace(one.launch, environment=environment)


def test_switch_that_a_knob_needs_is_refused(profile: Profile) -> None:
    one = recorded(profile, "INDEXER_KV_DTYPE=mxfp4")
    with pytest.raises(UserError, match="needs VLLM_MOET_MXFP4_INDEXER=1"):
        settings_of(profile, one, ["VLLM_MOET_MXFP4_INDEXER=0"])


def test_knob_that_is_gone_from_the_profile_is_named(profile: Profile) -> None:
    one = recorded(profile, "PROFILER=/traces")
    without = replace(profile, knobs={name: knob for name, knob in profile.knobs.items() if name != "PROFILER"})
    with pytest.raises(UserError, match="'PROFILER' is no knob of dsv41"):
        settings_of(without, one)
    assert settings_of(without, recorded(profile)).by_name["MAX_NUM_SEQS"].text == "8"
