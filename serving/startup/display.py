"""How far a start is, on stderr: drawn over and over on a terminal, else a line for each phase and each minute."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from serving.profiles.model import Start
from serving.startup.phases import PHASES, Phase, Tracker
from serving.startup.wording import duration
from tools.cli.output import Output

_EVERY_SECONDS = 60


class Display:
    """Shows a tracker. `what` says what is started."""

    def __init__(self, out: Output, draw: Callable[[RenderableType], None] | None, what: str, expected: Start) -> None:
        """`draw` is what Output.live() gives."""
        self._out, self._draw, self._what, self._expected = out, draw, what, expected
        self._said: set[str] = set()
        self._said_at = 0.0

    def show(self, tracker: Tracker, elapsed: float) -> None:
        """Shows where it is, `elapsed` seconds after the container's start."""
        if self._draw is not None:
            self._draw(self._picture(tracker, elapsed))
            return
        # Several phases can have begun since the last look.
        reached = [*(phase for phase in PHASES if phase.name in tracker.seconds), tracker.phase]
        new = [phase for phase in reached if phase.name not in self._said]
        for phase in new:
            self._note(elapsed, _place(tracker, phase))
        if not new and elapsed - self._said_at >= _EVERY_SECONDS:
            self._note(elapsed, _place(tracker, tracker.phase) + _last(tracker))
        self._said.update(phase.name for phase in new)

    def _note(self, elapsed: float, words: str) -> None:
        self._said_at = elapsed
        times = f"{duration(elapsed)} of about {duration(self._expected.expected)}"
        self._out.note(f"{self._what}: {times}: {words}")

    def _picture(self, tracker: Tracker, elapsed: float) -> RenderableType:
        expected, deadline = self._expected.expected, self._expected.deadline
        # The words keep their width, and the bar gets what is left.
        clock = Table.grid(padding=(0, 1))
        clock.add_column(no_wrap=True, min_width=34)
        clock.add_column(max_width=30)
        words = f"{duration(elapsed)} of about {duration(expected)}, at most {duration(deadline)}"
        clock.add_row(words, ProgressBar(total=expected, completed=min(elapsed, expected)))
        place = Text(f"{self._what}: {_place(tracker, tracker.phase)}", no_wrap=True, overflow="ellipsis")
        return Group(place, clock, Text(tracker.last, style="dim", no_wrap=True, overflow="ellipsis"))


@contextmanager
def display(out: Output, what: str, expected: Start) -> Iterator[Display]:
    """A display for as long as the block runs."""
    with out.live() as draw:
        yield Display(out, draw, what, expected)


def _place(tracker: Tracker, phase: Phase) -> str:
    number = PHASES.index(phase) + 1
    here = phase is tracker.phase and tracker.share is not None
    share = f", {tracker.share:.0%} ({tracker.bar})" if here else ""
    return f"{phase.name} ({number} of {len(PHASES)}){share}: {phase.what}"


def _last(tracker: Tracker) -> str:
    return f"; last line, {duration(tracker.quiet)} ago: {tracker.last}" if tracker.last else "; nothing logged yet"
