from dataclasses import replace

import pytest

from images.manifest import model
from releases.cutting import delta, lineage
from releases.tag import Tag
from tests.engine import synthetic

BASE = model.Base("vllm", "0.33.0", "4ba787ec9")


def patch(name: str, sha256: str) -> model.Patch:
    return model.Patch(f"{name}.patch", sha256, "", "", name, None, "no", "", "2026-11-29", ())


def manifest(*steps: model.Step, pins: tuple[model.Pin, ...] = (), **patches: str) -> model.Manifest:
    made = tuple(patch(step.name, patches.get(step.name, "0")) for step in steps)
    switches = tuple(model.Switch(step.switch, step.default, "1", step.name, "") for step in steps if step.switch)
    return model.Manifest(
        model.SCHEMA, "toy", "toy:vllm0.33.0-r1", BASE, "/site", (), pins, steps, made, switches, ()
    )


ONE, TWO = synthetic.step(1, "one"), synthetic.step(2, "two")


def test_against_nothing_every_step_is_new() -> None:
    found = delta.between(None, manifest(TWO, ONE))
    assert (found.added, found.retired, found.changed, found.pins) == ((ONE, TWO), (), (), ())


def test_steps_come_and_go() -> None:
    found = delta.between(manifest(ONE), manifest(TWO))
    assert (found.added, found.retired, found.changed) == ((TWO,), (ONE,), ())


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"default": "0"}, "default 1 -> 0"),
        ({"switch": None}, "switch VLLM_MOET_ONE -> none"),
        ({"numerics": "rounding"}, "numerics none -> rounding"),
        ({"kernels": ("moe",)}, "kernels none -> moe"),
        ({"patches": ("one.patch", "more.patch")}, "patches one.patch -> one.patch+more.patch"),
        ({"name": "uno"}, "name one -> uno"),
    ],
)
def test_what_makes_a_step_another(fields: dict[str, object], what: str) -> None:
    found = delta.between(manifest(ONE), manifest(replace(ONE, **fields)))  # type: ignore[arg-type]
    assert [change.what[0] for change in found.changed] == [what]


def test_words_alone_change_no_step() -> None:
    worded = replace(ONE, reason="other", evidence="//other", drop_when="never")
    assert delta.between(manifest(ONE), manifest(worded)).changed == ()


def test_another_patch_changes_its_step() -> None:
    found = delta.between(manifest(ONE, TWO), manifest(ONE, TWO, two="1"))
    assert [(change.step, change.what) for change in found.changed] == [(TWO, ("patch two.patch",))]


def test_another_library_changes_its_step() -> None:
    def image(sha256: str) -> model.Manifest:
        files = (model.File(model.library_path("/site", "moe"), sha256, 1, "kernel"),)
        return replace(manifest(replace(ONE, kernels=("moe",)), TWO), files=files)

    assert delta.between(image("0"), image("0")).changed == ()
    assert [change.what for change in delta.between(image("0"), image("1")).changed] == [("kernels moe",)]


def test_another_value_of_a_switch_changes_its_step() -> None:
    after = manifest(ONE)
    after = replace(after, switches=(replace(after.switches[0], on="64"),))
    assert [change.what for change in delta.between(manifest(ONE), after).changed] == [("VLLM_MOET_ONE 1 -> 64",)]


def test_pins() -> None:
    def pin(name: str, version: str, sha256: str = "0") -> model.Pin:
        return model.Pin(name, version, "wheel", None, sha256)

    before = manifest(pins=(pin("a", "1"), pin("b", "1"), pin("c", "1"), pin("d", "1")))
    after = manifest(pins=(pin("a", "1"), pin("b", "2"), pin("c", "1", "1"), pin("e", "1")))
    assert [str(change) for change in delta.between(before, after).pins] == [
        "b 1 -> 2",
        "c 1 -> 1 (another file)",
        "d 1 (gone)",
        "e 1 (new)",
    ]


@pytest.mark.parametrize(
    ("older", "tag", "expected"),
    [
        ([], "toy:v1-r0", None),
        ([], "toy:v1-r1", None),
        (["toy:v1-r0"], "toy:v1-r1", "toy:v1-r0"),
        (["toy:v1-r1", "toy:v1-r0"], "toy:v1-r2", "toy:v1-r1"),
        (["toy:v1-r1", "toy:v1-r0"], "toy:v2-r0", "toy:v1-r0"),
        (["toy:v2-r0", "toy:v1-r1", "toy:v1-r0"], "toy:v2-r1", "toy:v1-r1"),
        (["toy:v1-r1"], "toy:v1-r0", None),
        (["other:v1-r1"], "toy:v1-r1", None),
    ],
)
def test_what_a_release_follows(older: list[str], tag: str, expected: str | None) -> None:
    found = lineage.predecessor([Tag.parse(one) for one in older], Tag.parse(tag))
    assert (str(found) if found else None) == expected
