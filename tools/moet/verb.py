"""What a verb of `moet` is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from tools.cli.output import Output


@dataclass(frozen=True)
class Verb:
    """One verb: a thin face on the package that does the work.

    Attributes:
        summary: what it does, in one line without a full stop at the end.
        description: what a person must know to use it, in plain sentences; the reference prints it.
        arguments: adds its arguments to a parser; every argument has help. `--json` and `--tree` are there already.
        run: does it, prints through Output and returns the exit status; raises UserError for what the person
            can mend.
        examples: (command without `moet`, what it is for), for help and reference.
        exits: exit status to meaning, beyond 0, 1 (a line on stderr says why) and 2 (wrong usage).
    """

    summary: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], int]
    examples: tuple[tuple[str, str], ...] = ()
    exits: tuple[tuple[int, str], ...] = ()
