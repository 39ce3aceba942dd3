"""Unified diffs made: three lines of context, fixed labels, no timestamps."""

import difflib

from patches.engine.text import split_lines

CONTEXT = 3


def make_diff(path: str, before: bytes | None, after: bytes) -> bytes:
    """The diff that turns `before` (None: no such file) into `after`; empty if they are equal.

    The same contents give the same bytes, and `parse_diff` reads them back.
    """
    old = split_lines(before or b"")
    new = split_lines(after)
    label = f"a/{path}" if before is not None else "/dev/null"
    lines = difflib.diff_bytes(
        difflib.unified_diff, old, new, label.encode("ascii"), f"b/{path}".encode("ascii"), n=CONTEXT
    )
    return b"".join(_ended(line) for line in lines)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
