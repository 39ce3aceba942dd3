"""How far a start is, on stderr: drawn over and over on a terminal, else a line for each phase and each minute."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from serving.profiles.model import Start
from serving.startup.phases import PHASES, Tracker
from serving.startup.wording import duration
from tools.cli.output import Output

_EVERY_SECONDS = 60


class Display:
    """Shows a tracker. `what` says what is started."""

    def __init__(self, out: Output, draw: Callable[[RenderableType], None] | None, what: str, expected: Start) -> None:
        """`draw` is what Output.live() gives."""
        self._out, self._draw, self._what, self._expected = out, draw, what, expected
        self._said = ""
        self._said_at = 0.0

    def show(self, tracker: Tracker, elapsed: float) -> None:
        """Shows where it is, `elapsed` seconds after the container's start."""
        if self._draw is not None:
            self._draw(self._picture(tracker, elapsed))
        elif tracker.phase.name != self._said or elapsed - self._said_at >= _EVERY_SECONDS:
            new = tracker.phase.name != self._said
            self._said, self._said_at = tracker.phase.name, elapsed
            times = f"{duration(elapsed)} of about {duration(self._expected.expected)}"
            self._out.note(f"{self._what}: {times}: {_place(tracker)}" + ("" if new else _last(tracker)))

    def _picture(self, tracker: Tracker, elapsed: float) -> RenderableType:
        expected, deadline = self._expected.expected, self._expected.deadline
        # The words keep their width, and the bar gets what is left.
        clock = Table.grid(padding=(0, 1))
        clock.add_column(no_wrap=True, min_width=34)
        clock.add_column(max_width=30)
        words = f"{duration(elapsed)} of about {duration(expected)}, at most {duration(deadline)}"
        clock.add_row(words, ProgressBar(total=expected, completed=min(elapsed, expected)))
        place = Text(f"{self._what}: {_place(tracker)}", no_wrap=True, overflow="ellipsis")
        return Group(place, clock, Text(tracker.last, style="dim", no_wrap=True, overflow="ellipsis"))


@contextmanager
def display(out: Output, what: str, expected: Start) -> Iterator[Display]:
    """A display for as long as the block runs."""
    with out.live() as draw:
        yield Display(out, draw, what, expected)


def _place(tracker: Tracker) -> str:
    number = PHASES.index(tracker.phase) + 1
    share = "" if tracker.share is None else f", {tracker.share:.0%} ({tracker.bar})"
    return f"{tracker.phase.name} ({number} of {len(PHASES)}){share}: {tracker.phase.what}"


def _last(tracker: Tracker) -> str:
    return f"; last line, {duration(tracker.quiet)} ago: {tracker.last}" if tracker.last else "; nothing logged yet"
