import io

import pytest
from rich.console import Console

from serving.profiles.model import Start
from serving.startup import made_up
from serving.startup.display import display
from serving.startup.phases import PHASES, Tracker
from tools.cli.output import Output


def shown(monkeypatch: pytest.MonkeyPatch, term: str, *lines: str) -> str:
    """What a terminal of 60 columns gets while these lines are logged."""
    monkeypatch.setenv("TERM", term)
    out, file = Output(), io.StringIO()
    monkeypatch.setattr(out, "_err", Console(file=file, force_terminal=True, width=60, highlight=False))
    tracker = Tracker(made_up.Clock())
    with display(out, "generation 3", Start(1110, 2700)) as one:
        for number, line in enumerate(lines):
            tracker.feed(line)
            one.show(tracker, 10 * number)
    return file.getvalue()


def test_terminal_is_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown(monkeypatch, "xterm", *made_up.START[:5])
    assert "generation 3: weights (4 of 11), 25% (Loading safetensors" in drawn
    assert "0:40 of about 18:30, at most 45:00" in drawn
    # Three lines, which are gone at the end.
    assert drawn.count("\n") < 5 * 4
    assert drawn.rstrip("\n").endswith("\x1b[2K")


@pytest.mark.parametrize("line", ["[red]x[/red]", "Loading: 5%", "x" * 500, "\x1b[31mred\x1b[0m \x07"])
def test_line_of_the_server_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    drawn = shown(monkeypatch, "xterm", line)
    assert "\x07" not in drawn and "\x1b[31m" not in drawn
    assert line[:5] in drawn or "red" in drawn


def test_terminal_that_cannot_go_back_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown(monkeypatch, "dumb", *made_up.START[:5])
    assert "\x1b" not in drawn
    assert "generation 3: 0:30 of about 18:30: weights (4 of 11)" in " ".join(drawn.split())


def test_phases_between_two_looks_have_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out, file = Output(), io.StringIO()
    monkeypatch.setattr(out, "_err", Console(file=file, width=200, highlight=False))
    tracker = Tracker(made_up.Clock())
    with display(out, "it", Start(10, 20)) as one:
        one.show(tracker, 0)
        for line in made_up.START:
            tracker.feed(line)
        one.show(tracker, 1)
        one.show(tracker, 2)
    said = [line.split(": ")[2].split(",")[0] for line in file.getvalue().splitlines()]
    reached = [*tracker.seconds, tracker.phase.name]
    numbers = [number for number, phase in enumerate(PHASES, 1) if phase.name in reached]
    assert said == [f"{name} ({number} of {len(PHASES)})" for name, number in zip(reached, numbers, strict=True)]
    assert len(said) > 5
