"""The result in a terminal, and as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.outcome import Aim, Row

SCHEMA = "moet.bench.v1"
_WIDTH = 120
_CAPTION = "x: wall time over Moet's; with uv: the wheels' installation included. Docker's images are not compressed."


def console(stderr: bool) -> Console:
    """A console; where it is no terminal, wide enough for the tables."""
    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=_WIDTH)


def show(out: Console, facts: dict[str, Any], rows: Sequence[Row], aims: Sequence[Aim]) -> None:
    """Print what was measured on what, the rows, and the aims."""
    machine, content = facts["machine"], facts["content"]
    hardware = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB memory"
    system = f"{machine['file_system']}, Linux {machine['kernel']}, load {machine['load_average_1min']} at the start"
    lines = [f"{hardware}, {system}", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())]
    if content["files"]:
        wheels = f"{content['wheels']} wheels ({_mb(content['wheels_bytes'])}) of layers {', '.join(content['layers'])}"
        lines.append(f"content: {wheels}: {content['files']} files, {_mb(content['unpacked_bytes'])}")
    for line in lines:
        out.print(line, soft_wrap=True, highlight=False)
    out.print(_rows(rows))
    out.print(_aims(aims))


def document(facts: dict[str, Any], rows: Sequence[Row], aims: Sequence[Aim], runs: dict[str, Any]) -> dict[str, Any]:
    """The same for machines, every run included."""
    shown = {"rows": [asdict(row) for row in rows], "aims": [asdict(aim) for aim in aims]}
    return {"schema": SCHEMA, **facts, **shown, "runs": runs}


def _rows(rows: Sequence[Row]) -> Table:
    compared = any(row.times is not None for row in rows)
    table = Table(title="medians", caption=_CAPTION if compared else None)
    table.add_column("", no_wrap=True)
    for heading in ("runs", "wall s", "CPU s", "written MB", "image MB", *(("x", "x with uv") if compared else ())):
        table.add_column(heading, justify="right")
    for row in rows:
        numbers = [f"{row.wall_s:.2f}", f"{row.cpu_s:.2f}", f"{row.written_bytes / 1e6:.1f}"]
        image = "" if row.image_bytes is None else f"{row.image_bytes / 1e6:.1f}"
        ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in (row.times, row.times_installed)]
        table.add_row(row.name, str(row.runs), *numbers, image, *(ratios if compared else ()))
    return table


def _aims(aims: Sequence[Aim]) -> Table:
    table = Table(title="aims")
    for heading in ("", "aim", "measured", ""):
        table.add_column(heading)
    for aim in aims:
        table.add_row(aim.what, aim.wanted, aim.measured, "met" if aim.met else "MISSED")
    return table


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
