"""The command line that benches share: measures, prints a Markdown table, and writes JSON."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

Row = dict[str, object]


def _cell(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0%}" if name.endswith("share") else f"{value:.2f}"
    return str(value)


def markdown(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; columns whose name ends in `share` are in percent.

    >>> print(markdown([{"M": 6, "us": 1.5, "share": 0.25}]))
    | M | us | share |
    |---|---|---|
    | 6 | 1.50 | 25% |
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(name, row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def main(description: str | None, measure: Callable[[float], list[Row]]) -> None:
    """Runs a bench: `measure` gets the bytes a second that a copy moves on this GPU."""
    from kernels.testing import gpu

    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    gpu.warm_up()
    rate = gpu.copy_rate()
    rows = measure(rate)
    print(f"a copy moves {rate / 1e9:.0f} GB/s, read and written\n")
    print(markdown(rows))
    if args.json:
        args.json.write_text(json.dumps({"copy_bytes_per_second": rate, "rows": rows}, indent=2) + "\n")
