"""What a command prints: tables for people or one JSON document on stdout; progress and notes on stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text


class _Console(Console):
    """A Console that leaves a broken pipe to the program; rich would end it with status 1."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise


class Bar:
    """A progress bar of one phase at a time; silent where stderr is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, what: str, total: int) -> None:
        """A phase begins; `total` is its number of bytes, 0 where nobody knows."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total or None)

    def advance(self, amount: int) -> None:
        """`amount` more bytes of the phase are done."""
        if self._task is not None:
            self._progress.advance(self._task, amount)


class Output:
    """Where a command's results go. With `as_json`, lines and tables are withheld and one document is printed."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        # Piped output keeps its lines whole, whatever the width of the terminal behind it.
        width = None if sys.stdout.isatty() else 200
        self._out = _Console(file=sys.stdout, width=width, highlight=False, soft_wrap=not sys.stdout.isatty())
        self._err = _Console(stderr=True, highlight=False)

    def line(self, text: str = "", style: str = "") -> None:
        """Prints one line of a result, as it is; on a terminal in a colour such as "red", if `style` names one."""
        if not self.as_json:
            self._out.print(Text(text, style=style))

    def text(self, text: str) -> None:
        """Prints a file or a command to be copied: every character as it is, lines as long as they are."""
        if not self.as_json:
            self._out.file.write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
        """Prints a table; a column whose name begins with ">" is aligned to the right."""
        if self.as_json:
            return
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for name in columns:
            table.add_column(
                name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
        self._out.print(table)

    def document(self, value: dict[str, Any]) -> None:
        """Prints the one JSON document of a run with --json; without it, nothing. It names its "schema"."""
        if self.as_json:
            print(json.dumps(value, indent=1, ensure_ascii=False))

    def note(self, text: str) -> None:
        """Says on stderr what goes on: one line."""
        self._err.print(Text(text), soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[Bar]:
        """A progress bar on stderr for as long as the block runs."""
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._err, transient=True, disable=not self._err.is_terminal) as progress:
            yield Bar(progress)

    @contextmanager
    def live(self) -> Iterator[Callable[[RenderableType], None] | None]:
        """A part of the terminal on stderr that is drawn anew with each call, gone after the block.

        None where stderr is no terminal, or one that cannot go back a line.
        """
        if not self._err.is_terminal or self._err.is_dumb_terminal:
            yield None
            return
        with Live(console=self._err, transient=True, auto_refresh=False) as drawn:
            yield lambda picture: drawn.update(picture, refresh=True)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Shows that `what` is going on, where the end is not known beforehand; a plain line without a terminal."""
        if self._err.is_terminal:
            with self._err.status(Text(what)):
                yield
        else:
            self.note(what)
            yield
