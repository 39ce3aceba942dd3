"""What is said of switches before another image is taken."""

from dataclasses import replace
from pathlib import Path

import pytest

from images.engine import layout
from images.manifest import model
from images.manifest.model import Manifest
from releases.rollback import rollback_switches
from releases.rollback.rollback_switches import Instead
from tests.engine.synthetic import make_moet_layout, step
from tests.release.toy import manifest_of

R0, R1 = "line:vllm1.0-r0", "line:vllm1.0-r1"


@pytest.fixture
def full(tmp_path: Path) -> Manifest:
    steps = (step(1, "tiers"), step(2, "next", default="0"), step(3, "always", switch=None))
    image = layout.read(make_moet_layout(tmp_path / "full", R1, steps=steps))
    return model.decode(Manifest, model.loads(manifest_of(image)))


def test_steps_that_the_target_lacks(full: Manifest) -> None:
    bare = replace(full, tag=R0, steps=(), patches=(), switches=())
    found = rollback_switches.compare(full, bare)
    assert found == Instead(
        (("VLLM_MOET_TIERS", "0", "step 1 tiers"),),
        (("VLLM_MOET_NEXT", "step 2 next"),),
        ("step 3 always has no switch",),
    )
    assert found.lines(R1) == [
        f"a switch instead: -e VLLM_MOET_TIERS=0 with {R1} is without step 1 tiers",
        f"step 2 next is off in {R1} unless VLLM_MOET_NEXT is set",
        "no switch changes: step 3 always has no switch",
    ]


def test_the_same_image_leaves_nothing_to_say(full: Manifest) -> None:
    assert rollback_switches.compare(full, replace(full, tag=R0)).lines(R1) == []


def test_what_no_switch_changes(full: Manifest) -> None:
    other = replace(
        full,
        tag=R0,
        base=replace(full.base, version="0.9"),
        pins=full.pins[1:],
        steps=(*full.steps[:2], step(4, "later")),
        patches=tuple(replace(one, sha256="0" * 64) if one.step == "next" else one for one in full.patches),
    )
    assert rollback_switches.compare(full, other).beyond == (
        f"step 2 next is another in {R0}",
        "step 3 always has no switch",
        f"step 4 later is only in {R0}",
        "vllm 1.0 is vllm 0.9 there",
        f"1 pins ({full.pins[0].name})",
    )


def test_step_whose_kernels_are_others(tmp_path: Path) -> None:
    steps = (step(1, "tiers", kernels=("gemv",)),)
    path = "moet_kernels/gemv/gemv.so"
    images = [
        layout.read(make_moet_layout(tmp_path / name, tag, steps=steps, kernels={path: code}))
        for name, tag, code in (("old", R0, b"old"), ("new", R1, b"new"))
    ]
    old, new = (model.decode(Manifest, model.loads(manifest_of(image))) for image in images)
    assert rollback_switches.compare(new, old).beyond == (f"step 1 tiers is another in {R0}",)
    assert rollback_switches.compare(new, new).beyond == ()
