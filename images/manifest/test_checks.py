"""Inputs that make no manifest: each problem is one line that names the thing and says what to do."""

from pathlib import Path
from typing import Any

import pytest

from images.manifest import cli, model, names
from images.manifest.test_manifest import SITE, given, patch, run, step

__all__ = ["given"]


def edit_number(given: Any) -> None:
    given["line"]["steps"][0]["number"] = 1


def edit_name(given: Any) -> None:
    given["line"]["steps"][0].update(name="tiers", switch="VLLM_MOET_TIERS")


def set_step(index: int, **values: object) -> Any:
    return lambda given: given["line"]["steps"][index].update(values)


def set_patch(index: int, **values: object) -> Any:
    return lambda given: given["overlay"]["patches"][index].update(values)


def set_line(**values: object) -> Any:
    return lambda given: given["line"].update(values)


def set_pin(index: int, **values: object) -> Any:
    return lambda given: given["pins"][index].update(values)


def set_label(key: str, value: str) -> Any:
    return lambda given: given["line"]["labels"].update({key: value})


def set_file(index: int, column: int, value: object) -> Any:
    return lambda given: given["overlay layer"][index].__setitem__(column, value)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            set_step(0, number=1),
            ["step number 1 is used twice, by next and tiers: numbers are never reused, 2 is free"],
        ),
        (set_step(0, number=0), ["step next: number 0 is not positive: number steps from 1"]),
        (
            set_step(0, name="tiers"),
            [
                "step name tiers is used twice, by 1 and 2: rename one",
                "patch b.patch: its header says Step: next, but step tiers claims it: make both the same",
            ],
        ),
        (
            set_step(0, patches=[]),
            ["patch b.patch of the series is claimed by no step: add it to step next"],
        ),
        (
            set_step(0, patches=["b.patch", "c.patch"]),
            ["step next names the patch c.patch, which the series lacks: add it there or drop it"],
        ),
        (
            set_step(1, patches=["z.patch", "b.patch"]),
            [
                "patch b.patch is claimed twice, by steps tiers and next: keep one",
                "patch b.patch: its header says Step: next, but step tiers claims it: make both the same",
                "patch b.patch: its header says Switch: VLLM_MOET_NEXT, but step tiers has VLLM_MOET_TIERS: "
                "make both the same",
            ],
        ),
        (
            set_patch(1, step="tiers"),
            ["patch b.patch: its header says Step: tiers, but step next claims it: make both the same"],
        ),
        (
            set_patch(1, switch=None),
            [
                "patch b.patch: its header says Switch: none, but step next has VLLM_MOET_NEXT: make both the same",
            ],
        ),
        (
            set_step(0, switch="MOET_NEXT"),
            [
                "step next: switch 'MOET_NEXT': expected VLLM_MOET_<NAME> in capitals, digits and '_'",
                "patch b.patch: its header says Switch: VLLM_MOET_NEXT, but step next has MOET_NEXT: make both the same",
            ],
        ),
        (
            set_step(0, switch="VLLM_MOET_TIERS"),
            [
                "switch VLLM_MOET_TIERS is used twice, by tiers and next: give each its own",
                "patch b.patch: its header says Switch: VLLM_MOET_NEXT, but step next has VLLM_MOET_TIERS: "
                "make both the same",
            ],
        ),
        (
            set_step(0, switch=None),
            [
                "step next: off by default, but has no switch: give it one, or the default 1",
                "patch b.patch: its header says Switch: VLLM_MOET_NEXT, but step next has none: make both the same",
            ],
        ),
        (set_step(0, evidence=" "), ["step next: evidence is empty: fill it in"]),
        (
            lambda given: given["overlay"]["patches"].append(patch("b.patch", "next", "vllm/c.py")),
            ["patch b.patch stands twice in the series: keep one"],
        ),
        (
            lambda given: given["line"]["steps"].append(step(3, "Three_", [])),
            [
                "step 'Three_': expected lower-case words joined by '-', such as native-next-n",
                "step Three_: switch 'VLLM_MOET_THREE_': expected VLLM_MOET_<NAME> in capitals, digits and '_'",
            ],
        ),
        (
            set_pin(0, version="0.34.0"),
            [
                "base vllm 0.33.0: the wheel is pinned at 0.34.0: make both the same",
                "overlay vllm 0.33.0: the wheel is pinned at 0.34.0: make both the same",
            ],
        ),
        (
            set_pin(0, sha256="c" * 64),
            ["overlay vllm: made of vllm-0.33.0.whl, which is not pinned: rebuild it"],
        ),
        (
            set_pin(2, sha256="C" * 64),
            [f"pin bash: '{'C' * 64}' is no sha256: expected 64 hexadecimal digits"],
        ),
        (
            set_pin(1, commit="main"),
            ["pin deepgemm: 'main' is no commit: expected 7 to 64 hexadecimal digits"],
        ),
        (set_pin(1, commit=None), ["pin deepgemm: a source needs its commit, or a file with its sha256"]),
        (set_pin(2, file=None), ["pin bash: a deb needs file and sha256 together"]),
        (
            lambda given: given["pins"].append({**given["pins"][2], "version": "6"}),
            ["deb bash is pinned twice, at 5.2.15-2+b13 and 6: keep one"],
        ),
        (
            set_line(base={"name": "sglang", "version": "1", "commit": "abc"}, tag="dsv41:sglang1-r1"),
            [
                "base sglang: 'abc' is no commit: expected 7 to 64 hexadecimal digits",
                "base sglang 1: no pin has this name: add its lock to the image",
            ],
        ),
        (
            set_file(1, 4, "9" * 64),
            [
                f"overlay vllm: vllm/a.py should have sha256 {'3' * 64}, the layers have {'9' * 64}: "
                "build both from the same series"
            ],
        ),
        (
            lambda given: given["overlay layer"].pop(2),
            [
                f"overlay vllm: vllm/b.py should have sha256 {'4' * 64}, the layers have no such file: "
                "build both from the same series"
            ],
        ),
        (
            lambda given: given["overlay layer"].pop(),
            [
                f"overlay vllm: {SITE}/vllm-0.33.0.dist-info/RECORD is not among the files: "
                "give the layer that brings it up to date"
            ],
        ),
        (
            lambda given: given["runtime layer"].append(given["overlay layer"][1]),
            [f"{SITE}/vllm/a.py is there twice, as overlay and as runtime: keep one"],
        ),
        (
            lambda given: given["runtime layer"].append(["usr/../x", "f", 420, 1, "8" * 64, "moet"]),
            ["file '/usr/../x': expected an absolute path without '.', '..' or double slashes"],
        ),
        (
            lambda given: given["runtime layer"].append(["usr/a\nb", "f", 420, 1, "8" * 64, "moet"]),
            ["file '/usr/a\\nb': has a control character"],
        ),
        (
            set_label("org.opencontainers.image.titel", "x"),
            [
                "label org.opencontainers.image.titel: OCI reserves org.opencontainers.* and has no such key: "
                "did you mean org.opencontainers.image.title?"
            ],
        ),
        (
            set_label("org.moet.line", "other"),
            ["label org.moet.line: is computed: take it out of the line's labels"],
        ),
        (
            set_label("org.opencontainers.image.version", "1"),
            ["label org.opencontainers.image.version: is computed: take it out of the line's labels"],
        ),
        (
            set_label("com.example.note", "two\nlines"),
            ["label com.example.note: control character '\\n' at 3: use one plain line"],
        ),
        (
            set_line(created="yesterday"),
            ["created 'yesterday': expected a time in UTC such as 2026-01-31T12:00:00Z"],
        ),
        (
            set_line(created="2026-02-30T12:00:00Z"),
            ["created '2026-02-30T12:00:00Z': expected a time in UTC such as 2026-01-31T12:00:00Z"],
        ),
    ],
)
def test_problems(
    given: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any, expected: list[str]
) -> None:
    spoil(given)
    status, outputs = run(given, tmp_path)
    assert capsys.readouterr().err.splitlines() == ["image manifest: " + line for line in expected]
    assert status == 1
    assert not any(path.exists() for path in outputs)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            set_step(0, numerics="exact"),
            'steps[0].numerics: expected one of identical, rounding, format, none, found "exact"',
        ),
        (set_step(0, default="yes"), 'steps[0].default: expected one of 0, 1, found "yes"'),
        (set_step(0, number="2"), 'steps[0].number: expected an integer, found "2"'),
        (set_step(0, number=True), "steps[0].number: expected an integer, found true"),
        (set_step(0, patches="b.patch"), 'steps[0].patches: expected a list, found "b.patch"'),
        (set_step(0, swich="x"), "steps[0].swich: unknown key"),
        (set_line(labels=[]), "labels: expected an object, found []"),
        (set_line(base="vllm"), 'base: expected an object, found "vllm"'),
        (set_label("com.example.n", 3), "labels.com.example.n: expected a string, found 3"),  # type: ignore[arg-type]
        (set_line(tag="x" * 99), "tag"),
    ],
)
def test_shape(
    given: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any, message: str
) -> None:
    spoil(given)
    assert run(given, tmp_path)[0] == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_missing_overlay_leaves_its_patches_unknown(
    given: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(given, tmp_path, with_overlay=False)[0] == 1
    assert capsys.readouterr().err.splitlines() == [
        f"image manifest: step {name} names the patch {patch}, which the series lacks: add it there or drop it"
        for name, patch in (("tiers", "z.patch"), ("next", "b.patch"))
    ]


def test_unknown_kind_of_layer(tmp_path: Path, given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(given, tmp_path)
    outputs = [f"--{each}={tmp_path}/new.{each}" for each in ("manifest", "labels", "env")]
    listing = ["--layer", "wheel", f"{tmp_path}/overlay layer.json"]
    assert cli.main(["--line", f"{tmp_path}/line.json", "--site", SITE, *listing, *outputs]) == 1
    assert "kind 'wheel' of files: expected one of overlay, kernel, runtime" in capsys.readouterr().err


@pytest.mark.parametrize("tag", ["dsv41:vllm0.33.0-r1", "dsv41:vllm0.33.0-r0", "dsv41:vllm0.33.0-r12"])
def test_right_tag(tag: str) -> None:
    assert names.tag_problems(tag, "dsv41", "vllm0.33.0") == []


@pytest.mark.parametrize("line", ["dsv41_hybrid", "moet/k31_b300", "a__b", "a--b", "a.b"])
def test_right_line(line: str) -> None:
    assert names.tag_problems(f"{line}:vllm0.33.0-r1", line, "vllm0.33.0") == []


@pytest.mark.parametrize(
    ("tag", "line", "base", "message"),
    [
        ("dsv41", "dsv41", "vllm0.33.0", "has no ':', expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0-r", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0-r01", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0-r1\n", "dsv41", "vllm0.33.0", "is no tag that OCI allows"),
        ("dsv41:vllm0.34.0-r1", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("other:vllm0.33.0-r1", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("Dsv41:vllm0.33.0-r1", "Dsv41", "vllm0.33.0", "'Dsv41' is no repository name that OCI allows"),
        ("a___b:vllm0.33.0-r1", "a___b", "vllm0.33.0", "'a___b' is no repository name that OCI allows"),
        ("dsv41:vllm0.33.0+cu130-r1", "dsv41", "vllm0.33.0+cu130", "'vllm0.33.0+cu130-r1' is no tag"),
        ("dsv41:-vllm-r1", "dsv41", "-vllm", "'-vllm-r1' is no tag that OCI allows"),
        (f"dsv41:{'v' * 126}-r1", "dsv41", "v" * 126, "is no tag that OCI allows: at most 128"),
    ],
)
def test_wrong_tag(tag: str, line: str, base: str, message: str) -> None:
    problems = names.tag_problems(tag, line, base)
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(
    "key", ["title", "Org.Example", "org.example.", "org..example", ".org.x", "org.ex_ample", "org/x", ""]
)
def test_wrong_label_key(key: str) -> None:
    problems = names.label_problems({key: "value"})
    assert len(problems) == 1
    assert problems[0].startswith(f"label {key!r}: expected a reverse-DNS name")


@pytest.mark.parametrize("key", ["org.example", "org.example.a-b.c1", "org.opencontainers.image.ref.name"])
def test_right_label_key(key: str) -> None:
    assert names.label_problems({key: "Any text, \u00e9 too; no matter how long" * 9}) == []


@pytest.mark.parametrize("value", ["\x00", "a\tb", "\x7f", "\x9f", "\u2028", "\ud800"])
def test_control_characters_in_labels(value: str) -> None:
    assert "control character" in names.label_problems({"org.example.x": value})[0]


def test_decode_refuses_what_only_looks_alike() -> None:
    with pytest.raises(model.DataError, match="size: expected an integer, found 1.0"):
        model.decode(model.File, {"path": "/x", "sha256": "", "size": 1.0, "kind": "kernel"})
    with pytest.raises(model.DataError, match="kind: expected one of overlay, kernel, runtime, found null"):
        model.decode(model.File, {"path": "/x", "sha256": "", "size": 1, "kind": None})
