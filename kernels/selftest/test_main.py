"""The command: its lines, its result for programs, its exit statuses, and a card that a family took away."""

import json

import numpy as np
import pytest

from kernels.selftest import card, main, outcome
from kernels.selftest.card import Card
from kernels.selftest.comparison import Comparison

CARDS = [Card("cuda:0", "First", "12.0"), Card("cuda:1", "Second", "9.0")]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "visible", lambda: CARDS)
    monkeypatch.setattr(Card, "is_usable", lambda _: True)


def set_cases(monkeypatch: pytest.MonkeyPatch, **errors: float | Exception | None) -> None:
    """Gives families cases with these errors on every card, in units of the bound, or that raise, or with none."""

    def comparisons(family: str, device: str) -> list[Comparison]:
        error, one = errors[family], np.ones(3)
        if isinstance(error, Exception):
            raise error
        if error is None:
            return []
        return [Comparison("rounded", one + error, one, one), Comparison("counted", one, one)]

    monkeypatch.setattr(outcome, "comparisons", comparisons)
    monkeypatch.setattr(main, "families", lambda: sorted(errors))


@pytest.mark.usefixtures("cards")
def test_all_right(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_cases(monkeypatch, skinny_gemm=0.25, mxfp8_gemv=0.5)
    assert main.main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line.partition(": ok (")[0] for line in out.splitlines()]
    counts = "largest of 1 errors {} of its bound, 1 outputs exact"
    assert lines == [
        f"moet: selftest: mxfp8_gemv on cuda:0, First, compute capability 12.0: {counts.format('0.50')}",
        f"moet: selftest: mxfp8_gemv on cuda:1, Second, compute capability 9.0: {counts.format('0.50')}",
        f"moet: selftest: skinny_gemm on cuda:0, First, compute capability 12.0: {counts.format('0.25')}",
        f"moet: selftest: skinny_gemm on cuda:1, Second, compute capability 9.0: {counts.format('0.25')}",
        "moet: selftest: 2 families, 2 cards: ok",
    ]


@pytest.mark.usefixtures("cards")
def test_one_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_cases(monkeypatch, skinny_gemm=0.25, mxfp8_gemv=1.5)
    assert main.main([]) == 1
    out, _ = capsys.readouterr()
    assert out.splitlines()[0] == (
        "moet: selftest: mxfp8_gemv on cuda:0, First, compute capability 12.0: FAILED: "
        "rounded: error is 1.5 times its bound"
    )
    assert out.splitlines()[-1] == "moet: selftest: 2 families, 2 cards: FAILED: mxfp8_gemv"


@pytest.mark.usefixtures("cards")
def test_result_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_cases(monkeypatch, skinny_gemm=float("nan"))
    assert main.main(["--json", "--family", "skinny_gemm"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 and len(err.splitlines()) == 3
    found = json.loads(out, parse_constant=pytest.fail)
    assert (found["schema"], found["ok"], found["error"]) == ("moet.selftest.v1", False, None)
    first = found["results"][0]
    assert first.pop("seconds") >= 0
    assert first == {
        "family": "skinny_gemm",
        "device": "cuda:0",
        "card": "First",
        "compute_capability": "12.0",
        "ok": False,
        "problem": "rounded: error is inf times its bound",
        "largest_error_share": None,
        "bounded_outputs": 1,
        "exact_outputs": 1,
    }


@pytest.mark.usefixtures("cards")
def test_order_is_the_given_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_cases(monkeypatch, skinny_gemm=0.0, mxfp8_gemv=0.0)
    assert main.main(["--json", "--family", "skinny_gemm", "--family", "mxfp8_gemv"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["family"] for one in found["results"]] == ["skinny_gemm"] * 2 + ["mxfp8_gemv"] * 2


@pytest.mark.usefixtures("cards")
def test_what_a_family_raises_is_its_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_cases(monkeypatch, mxfp8_gemv=RuntimeError("CUDA error: no kernel image\nmore of it"), skinny_gemm=0.0)
    assert main.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": FAILED: RuntimeError: CUDA error: no kernel image")
    assert ": ok (" in lines[2]


@pytest.mark.usefixtures("cards")
def test_card_that_a_family_took_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_cases(monkeypatch, mxfp8_gemv=RuntimeError("illegal memory access"), skinny_gemm=0.0)
    monkeypatch.setattr(Card, "is_usable", lambda one: one.device != "cuda:0")
    assert main.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith("not tested: mxfp8_gemv left this card unusable to the process")
    assert ": ok (" in lines[3]


@pytest.mark.usefixtures("cards")
def test_cases_that_compare_nothing_are_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cases(monkeypatch, skinny_gemm=None)
    assert [one.problem for one in main.run(["skinny_gemm"], CARDS)] == ["its cases compare nothing"] * 2


def test_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 3
    out, err = capsys.readouterr()
    assert err.startswith("moet: selftest: torch sees no GPU: expected one; give the container its GPUs")
    assert (out, err.count("\n")) == ("", 1)
    assert main.main(["--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["results"]) == (False, [])
    assert err == f"moet: selftest: {found['error']}\n"


def test_gpu_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: int) -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\nmore of it")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", refuse)
    assert main.main([]) == 3
    expected = "moet: selftest: torch cannot use the GPU: The NVIDIA driver on your system is too old\n"
    assert capsys.readouterr() == ("", expected)


def test_torch_without_cuda(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("torch.version.cuda", None)
    assert main.main([]) == 3
    out, err = capsys.readouterr()
    assert out == "" and "is built without CUDA: expected a build with it" in err


def test_unknown_family(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--family", "x"])
    assert caught.value.code == 2
    assert "invalid choice: 'x'" in capsys.readouterr().err


def test_usable_card() -> None:
    assert Card("cpu", "no card", "0.0").is_usable()
    assert not Card("cuda:0", "none", "0.0").is_usable()
