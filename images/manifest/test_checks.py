"""Inputs that make no manifest: each problem is one line that names the thing and says what to do."""

from pathlib import Path
from typing import Any

import pytest

from images.manifest import cli, example
from images.manifest.example import SITE, library, patch, run, step


@pytest.fixture
def given() -> Any:
    return example.inputs()


SWITCH = "patch b.patch: its header says Switch: {}, but step {} has {}: make both the same"


def set_step(index: int, **values: object) -> Any:
    return lambda given: given["line"]["steps"][index].update(values)


def set_code(path: str, text: str) -> Any:
    return lambda given: given["code"].update({path: text})


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


def set_kernels(named: list[str], rows: list[Any]) -> Any:
    """Step next names kernels, and the image has a layer of them."""

    def spoil(given: Any) -> None:
        given["line"]["steps"][0]["kernels"] = named
        given["kernel layer"] = rows

    return spoil


def misplaced(family: str) -> list[Any]:
    return [f"{SITE[1:]}/moet_kernels/{family}.so", *library(family)[1:]]


LACKS = (
    "step next names the kernels {0}, but {1}/moet_kernels/{0}/{0}.so is not among the files: "
    "give the layer that has it"
)


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
                SWITCH.format("VLLM_MOET_NEXT", "tiers", "VLLM_MOET_TIERS"),
            ],
        ),
        (
            set_patch(1, step="tiers"),
            ["patch b.patch: its header says Step: tiers, but step next claims it: make both the same"],
        ),
        (
            set_patch(1, switch=None),
            [
                SWITCH.format("none", "next", "VLLM_MOET_NEXT"),
            ],
        ),
        (
            set_step(0, switch="MOET_NEXT"),
            [
                "step next: switch 'MOET_NEXT': expected VLLM_MOET_<NAME> in capitals, digits and '_'",
                SWITCH.format("VLLM_MOET_NEXT", "next", "MOET_NEXT"),
            ],
        ),
        (
            set_step(0, switch="VLLM_MOET_TIERS"),
            [
                "switch VLLM_MOET_TIERS is used twice, by tiers and next: give each its own",
                SWITCH.format("VLLM_MOET_NEXT", "next", "VLLM_MOET_TIERS"),
            ],
        ),
        (
            set_step(0, switch=None),
            [
                "step next: without a switch its default is 1, not '0'",
                SWITCH.format("VLLM_MOET_NEXT", "next", "none"),
            ],
        ),
        (set_step(0, on="-1"), ["switch VLLM_MOET_NEXT: '-1' cannot turn it on: expected a number above 0"]),
        (set_step(1, default="yes"), ["switch VLLM_MOET_TIERS: default 'yes': expected 0 or 1"]),
        (set_step(1, on="64"), ["switch VLLM_MOET_TIERS: default '1': expected 0 or 64"]),
        (
            set_step(1, default="0"),
            [
                "switch VLLM_MOET_TIERS: vllm/a.py:3 takes 1 where it is not set, step tiers says 0: "
                "make both the same"
            ],
        ),
        (
            set_code("vllm/b.py", "import os\n\nX = os.getenv('VLLM_MOET_OTHER', '1')\n"),
            ["switch VLLM_MOET_OTHER: vllm/b.py:3 reads it, but no step has it: give it to one"],
        ),
        (
            set_code("vllm/c.py", "MESSAGE = 'VLLM_MOET_NEXT must be 0 or 1'\n"),
            ["switch VLLM_MOET_NEXT: no changed file reads it, b.patch must"],
        ),
        (
            set_code("vllm/b.py", "def\n"),
            ["vllm/b.py:1: no Python after the patches: invalid syntax"],
        ),
        (set_step(0, evidence=" "), ["step next: evidence is empty: fill it in"]),
        (
            lambda given: given["overlay"]["patches"].append(patch("b.patch", "next", "vllm/c.py")),
            ["patch b.patch stands twice in the series: keep one"],
        ),
        (
            lambda given: given["line"]["steps"].append(step(3, "three_", [])),
            [
                "step 'three_': expected lower-case words joined by '-', such as native-next-n",
                "step three_: "
                "switch 'VLLM_MOET_THREE_': expected VLLM_MOET_<NAME> in capitals, digits and '_'",
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
            set_line(base={"name": "sglang", "version": "1", "commit": "abc"}, tag="dsv41:sglang1-r1-dev"),
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
                "label org.opencontainers.image.titel: OCI reserves org.opencontainers.* "
                "and has no such key: did you mean org.opencontainers.image.title?"
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
        (set_kernels(["moe", "gemv"], [library("gemv")]), [LACKS.format("moe", SITE)]),
        (set_kernels(["gemv"], []), [LACKS.format("gemv", SITE)]),
        (set_kernels(["gemv"], [misplaced("gemv")]), [LACKS.format("gemv", SITE)]),
        (
            set_kernels(["gemv"], [library("gemv"), library("moe")]),
            [f"kernels moe are named by no step: add them to one, or leave {SITE}/moet_kernels/moe/moe.so out"],
        ),
        (
            lambda given: given["line"]["steps"].append(step(3, "selftest", [])),
            ["step selftest: VLLM_MOET_SELFTEST starts the self-test: give the switch another name"],
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
        (set_step(0, default=1), "steps[0].default: expected a string, found 1"),
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
        f"image manifest: step {each} names the patch {name}, which the series lacks: add it there or drop it"
        for each, name in (("tiers", "z.patch"), ("next", "b.patch"))
    ]


def test_unknown_kind_of_layer(tmp_path: Path, given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(given, tmp_path)
    outputs = [f"--{each}={tmp_path}/new.{each}" for each in ("manifest", "labels", "env")]
    listing = ["--layer", "wheel", f"{tmp_path}/overlay layer.json"]
    assert cli.main(["--line", f"{tmp_path}/line.json", "--site", SITE, *listing, *outputs]) == 1
    assert "kind 'wheel' of files: expected one of overlay, kernel, runtime" in capsys.readouterr().err
