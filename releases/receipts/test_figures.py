import pytest

from releases.receipts import figures

FIGURES = {
    "94 step tests pass on the image": ["94"],
    "20 of 20 passed": ["20", "20"],
    "4,552.1 MB in 129.4 s": ["4,552.1", "129.4"],
    "1.5x faster, 3 % less, 2-3 ms, 10x-speed": ["1.5", "3", "2", "3", "10"],
    "2 to 3 tokens/s (12 min), -5 % and 12-bit": ["2", "3", "12", "5", "12"],
    "1.5 x faster, 5 seconds": ["1.5", "5"],
    "[12 tests](docs/evidence/a.json)": ["12"],
    "reads 100,000 tokens, and": ["100,000"],
    "in **7** s": ["7"],
}
NONE = [
    "`5 s` and `94 tests`",
    "sm_120, r1, vllm 0.33.0, 2026-11-29, RTX PRO 6000",
    "Steps 1, 2 and 3 pass",
    "rows to 64 instead of 128",
    "vLLM 0.33.0 tests",
    "3 x 4",
    "[receipt](docs/evidence/12s/3%.json)",
    "two times",
]


@pytest.mark.parametrize("text", FIGURES)
def test_figures(text: str) -> None:
    assert figures.figures(text) == FIGURES[text]


@pytest.mark.parametrize("text", NONE)
def test_no_figures(text: str) -> None:
    assert figures.figures(text) == []


@pytest.mark.parametrize(
    ("number", "text", "there"),
    [
        ("1.6", "took 1.6 s", True),
        ("1.6", "took 11.6 s", False),
        ("1.6", "took 1.62 s", False),
        ("1.6", "took 1.6.", True),
        ("4,552.1", "4552.1MB", True),
        ("4552.1", "4,552.1 MB", True),
        ("94", "94 passed", True),
        ("94", "194 passed", False),
        ("94", "0.94", False),
        ("94", "94.5", False),
        ("94", "", False),
    ],
)
def test_occurs(number: str, text: str, there: bool) -> None:
    assert figures.occurs(number, text) is there


def test_links() -> None:
    assert figures.links("see [a](b.json), `[c](d)` and [e f](docs/g.md)") == ["b.json", "docs/g.md"]
