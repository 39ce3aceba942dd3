"""The command line that benches share: measures, prints a Markdown table, and writes JSON."""

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
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


def _library(text: str) -> Path:
    """A library's path. Raises ArgumentTypeError, which argparse prints, where there is no such file."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such file; expected a library")
    return path.resolve()


def main(
    description: str | None, measure: Callable[..., list[Row]], libraries: Mapping[str, str] | None = None
) -> None:
    """Runs a bench.

    Args:
        description: its module's docstring.
        measure: gets the bytes a second that a copy moves on this GPU, and by name each library that was given.
        libraries: what can be measured beside ours: options that take a library's path, with their help.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    for name, words in (libraries or {}).items():
        parser.add_argument(f"--{name}", type=_library, metavar="LIBRARY", help=words)
    args = parser.parse_args()
    given: dict[str, Path] = {name: path for name in libraries or {} if (path := getattr(args, name)) is not None}

    from kernels.testing import gpu

    gpu.warm_up()
    rate = gpu.copy_rate()
    rows = measure(rate, **given)
    print(f"a copy moves {rate / 1e9:.0f} GB/s, read and written\n")
    print(markdown(rows))
    if args.json:
        beside = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in given.items()}
        document = {"copy_bytes_per_second": rate, "rows": rows} | ({"beside_sha256": beside} if beside else {})
        args.json.write_text(json.dumps(document, indent=2) + "\n")
