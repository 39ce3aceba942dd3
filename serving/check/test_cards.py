import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from serving.check import cards
from serving.check.cards import Watch, seen, watched
from serving.preflight.host import Host
from serving.preflight.programs import Done

FINE = {
    "index": "0",
    "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "clocks_event_reasons.active": "0x0000000000000000",
    "utilization.gpu": "98",
    "temperature.gpu": "61",
    "enforced.power.limit": "600.00",
    "power.default_limit": "600.00",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
    "pcie.link.gen.current": "5",
    "pcie.link.gen.max": "5",
}


def smi(*looks: Sequence[dict[str, str]], status: int = 0) -> Callable[[Sequence[str]], Done]:
    """nvidia-smi that shows these cards, one look after another and the last for ever, in the order it is asked for."""
    left = list(looks)

    def run(words: Sequence[str]) -> Done:
        assert words[0] == "nvidia-smi" and words[2] == "--format=csv,noheader,nounits"
        fields = words[1].removeprefix("--query-gpu=").split(",")
        rows = left.pop(0) if len(left) > 1 else left[0]
        text = "".join(", ".join({**FINE, **row}[field] for field in fields) + "\n" for row in rows)
        return Done(status, text, "")

    return run


def said(tmp_path: Path, *looks: Sequence[dict[str, str]], status: int = 0) -> list[str]:
    watch = Watch(Host(sys=tmp_path, run=smi(*looks, status=status)))
    for _ in looks:
        watch.look()
    return seen(watch)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"clocks_event_reasons.active": "0x0000000000000020", "temperature.gpu": "91"}, "held back by heat (91 C)"),
        ({"clocks_event_reasons.active": "0x40", "temperature.gpu": "[N/A]"}, "held back by heat: more air"),
        ({"clocks_event_reasons.active": "0x80"}, "the board braked its clocks"),
        (
            {"index": "3", "clocks_event_reasons.active": "0x4", "enforced.power.limit": "300.00"},
            "card 3: it ran into a power limit of 300 W of 600 W: nvidia-smi -i 3 -pl 600",
        ),
        ({"pcie.link.width.current": "8"}, "PCIe has 8 of 16 lanes"),
        ({"pcie.link.gen.current": "3"}, "PCIe ran at generation 3 of 5"),
    ],
)
def test_what_slows_a_card_is_said(row: dict[str, str], says: str, tmp_path: Path) -> None:
    (line,) = said(tmp_path, [{}, {"index": "1", **row}])
    assert says in line


def test_a_card_that_is_as_it_should_be_is_not_mentioned(tmp_path: Path) -> None:
    # Its own power limit is where a card runs at full load.
    at_limit = {"clocks_event_reasons.active": "0x4"}
    unknown = dict.fromkeys((name for name in FINE if name not in ("index", "name")), "[N/A]")
    assert said(tmp_path, [{}, {"index": "1", **at_limit}, {"index": "2", **unknown}]) == []


def test_a_card_that_is_not_used_is_not_looked_at(tmp_path: Path) -> None:
    idle = {"utilization.gpu": "0", "pcie.link.gen.current": "1", "clocks_event_reasons.active": "0x1"}
    assert said(tmp_path, [idle]) == []


def test_of_several_looks_the_worst_counts_and_of_the_link_the_best(tmp_path: Path) -> None:
    hot = {"clocks_event_reasons.active": "0x20", "temperature.gpu": "90", "pcie.link.gen.current": "1"}
    lines = said(tmp_path, [hot], [{}])
    assert lines == ["card 0: its clocks were held back by heat (90 C): more air, or a lower power limit"]


@pytest.mark.parametrize("status", [0, 9])
def test_nvidia_smi_that_fails_says_nothing(status: int, tmp_path: Path) -> None:
    def missing(_words: Sequence[str]) -> Done:
        raise FileNotFoundError("nvidia-smi")

    def garbled(_words: Sequence[str]) -> Done:
        return Done(0, "no devices\n", "")

    assert said(tmp_path, [{"pcie.link.width.current": "8"}], status=9) == []
    for run in (missing, garbled):
        watch = Watch(Host(sys=tmp_path, run=run))
        watch.look()
        assert watch.cards == []


def test_governors(tmp_path: Path) -> None:
    for number, governor in enumerate(("performance", "powersave", "powersave")):
        folder = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    (line,) = said(tmp_path, [{}])
    assert "the CPU's governor is powersave" in line and "cpupower" in line


def test_cards_are_looked_at_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "_FIRST_SECONDS", 0.001)
    monkeypatch.setattr(cards, "_EVERY_SECONDS", 0.001)
    looked = threading.Semaphore(0)
    look = smi([{}])

    def run(words: Sequence[str]) -> Done:
        looked.release()
        return look(words)

    with watched(Host(run=run)) as watch:
        for _ in range(3):
            assert looked.acquire(timeout=120)
    assert [card.index for card in watch.cards] == ["0"]


def test_nothing_is_said_of_a_host_that_is_elsewhere() -> None:
    with watched(None) as watch:
        watch.look()
    assert watch.cards == [] and watch.governors() == set() and seen(watch) == []
