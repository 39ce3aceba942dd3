from pathlib import Path

import pytest

from releases.known import Known
from releases.rollback.state import Place, State
from releases.tag import Tag
from serving.launch import image, settings
from serving.profiles import load
from tools.cli.errors import UserError

R1 = "dsv41:vllm0.33.0-r1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def known() -> Known:
    return Known(None, Path("CHANGELOG.md").read_text(), Path("releases/records"))


def resolved(*given: str) -> settings.Settings:
    return settings.resolve(load.load("dsv41"), given, {})


def test_asked_for_then_current_then_newest(known: Known) -> None:
    newest = known.changelog.newest("dsv41")
    assert newest and image.choose(resolved(), known) == (str(newest.tag), "newest release")
    entry = known.entry(Tag.parse("dsv41:vllm0.33.0-r0"))
    place = Place(str(entry.tag), entry.digest, entry.image_id, "docker")
    State.read("dsv41").change("set", place, "a test").write()
    assert image.choose(resolved(), known) == ("dsv41:vllm0.33.0-r0", "current on this host")
    assert image.choose(resolved(f"IMAGE={R1}"), known) == (R1, "--set")


def test_image_of_another_line_is_refused(known: Known) -> None:
    asked = "IMAGE=host:5000/v024:vllm0.24.0-r1"
    with pytest.raises(UserError, match=rf"^{asked} \(--set\): is of the line v024, not dsv41"):
        image.choose(resolved(asked), known)


def test_line_without_a_release_says_what_to_set() -> None:
    with pytest.raises(UserError, match="dsv41 has no release: set IMAGE to an image"):
        image.choose(resolved(), Known(None, "# Changelog\n\nWhat it is.\n\n## [Unreleased]\n", Path("none")))


@pytest.mark.parametrize("name", [R1, f"host:5000/moet/{R1}", f"{R1}@sha256:{'0' * 64}"])
def test_switch_that_a_release_does_not_have_is_refused(name: str, known: Known) -> None:
    with pytest.raises(UserError) as error:
        image.check_switches(resolved("INDEXER_KV_DTYPE=mxfp4"), name, known)
    switch = "VLLM_MOET_MXFP4_INDEXER=1 (INDEXER_KV_DTYPE=mxfp4)"
    assert str(error.value) == f"{switch}: {name} has no step with this switch: leave it, or set IMAGE"


def test_self_test_of_a_release_without_kernels_is_refused(known: Known) -> None:
    with pytest.raises(UserError, match=f"^VLLM_MOET_SELFTEST=1 .*: {R1} has no kernels to test"):
        image.check_switches(resolved("VLLM_MOET_SELFTEST=1"), R1, known)


def test_switches_that_a_release_has_and_images_that_nobody_knows_pass(known: Known) -> None:
    image.check_switches(resolved("VLLM_MOET_MOE_BLOCK_M=64", "VLLM_MOET_REASONING_TIERS=0"), R1, known)
    image.check_switches(resolved("INDEXER_KV_DTYPE=mxfp4"), "dsv41:vllm0.33.0-r2-dev", known)
    image.check_switches(resolved("INDEXER_KV_DTYPE=mxfp4"), f"dsv41@sha256:{'0' * 64}", known)
