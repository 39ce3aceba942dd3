"""How results of simulations are shown: tables, plots of text, CSV, SVG, a JSON document."""

import csv
import importlib
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tools.cli.output import Output

from . import svg
from .study import Result, Setting
from .trace import RoutingTrace

SCHEMA = "moet.experts-simulate.v1"
_COLUMNS = (
    "policy", "slots", "share", "slot_bytes", "hit_rate", "zero_miss", "misses", "bytes_a_step", "replays_least",
    "replays_most", "step_seconds_least", "step_seconds_most", "parts", "below_floor",
)  # fmt: skip
_MARKERS = "rfao*"


def show(trace: RoutingTrace, results: Sequence[Result], setting: Setting, plots: bool, out: Output) -> None:
    """Prints the trace in a line, the table, and the plots."""
    cells = len(trace.layers) * trace.experts
    out.line(
        f"{trace.steps:,} steps of up to {trace.most_rows} rows, {len(trace.layers)} layers x {trace.experts} experts "
        f"({cells:,} cells), top {trace.top_k}; {trace.source or 'recorded'}"
    )
    out.line(
        f"{setting.kind.value} slots of {setting.bytes_a_slot:,} B, mode {setting.mode}, "
        f"{setting.warm:,} steps to warm up; "
        f"step {setting.link.step * 1e3:g} ms, link {setting.link.bytes_a_second / 1e9:g} GB/s + "
        f"{setting.link.latency * 1e6:g} us a copy; tick {setting.steps_a_tick} steps"
        + (f", pass {setting.steps_a_pass} steps" if setting.mode == "promote" else "")
    )
    _table(results, setting, out)
    if any(result.below_floor for result in results):
        out.line("* below the floor, forced: steps that do not fit are computed layer by layer or in parts")
    if setting.mode == "promote":
        out.line("bound: no policy hits more; it knows the trace and swaps at no cost, so none may reach it")
    if plots and not out.as_json:
        shown = [("hit_rate", "hit rate"), ("zero_miss", "zero-miss steps")]
        out.line()
        for attribute, title in shown:
            out.text(plot(results, attribute, title) + "\n\n")


def _table(results: Sequence[Result], setting: Setting, out: Output) -> None:
    demand = setting.mode == "demand"
    columns = [">slots", ">share", ">GiB", "policy", ">hit rate", ">zero-miss steps", ">misses a step", ">MB a step"]
    columns += [">replays a step", ">ms a step"] if demand else []
    rows = []
    before: tuple[int, ...] | None = None
    for result in results:
        first = result.quotas != before
        before = result.quotas
        low = "*" if result.below_floor else ""
        row = (
            [f"{result.slots:,}{low}", f"{result.share:.1%}", f"{result.slot_bytes / 2**30:.2f}"]
            if first
            else ["", "", ""]
        )
        row += [result.policy, f"{result.hit_rate:.2%}", "" if result.zero_miss is None else f"{result.zero_miss:.2%}"]
        row += [f"{result.misses:.2f}", f"{result.bytes_a_step / 1e6:.2f}"]
        if demand:
            least, most = (1e3 * seconds for seconds in result.step_seconds)
            row += [f"{result.replays[0]:.2f} to {result.replays[1]:.2f}", f"{least:.2f} to {most:.2f}"]
        rows.append(row)
    out.table(columns, rows)


def plot(results: Sequence[Result], attribute: str, title: str) -> str:
    """A plot of text, without colours: an attribute of every policy against the share of cells that have a slot."""
    # plotext states no types.
    figure = importlib.import_module("plotext").figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(90, 22)
    figure.title(f"{title} (%) by slots as a share of all experts (%)")
    for number, (name, points) in enumerate(_lines(results, attribute).items()):
        signal = figure.signal([100 * x for x, _ in points], [100 * y for _, y in points], marker=_MARKERS[number])
        if len(points) > 1:
            signal.lines()
        signal.label(name)
        figure.draw(signal)
    for axis in ("x", "y"):
        figure.ruler(axis).lim(0, 100)
    built: str = figure.build().string(colorless=True)
    return "\n".join(line.rstrip() for line in built.splitlines())


def drawing(results: Sequence[Result]) -> str:
    """The same two plots as one SVG."""
    shown = [("hit_rate", "Hit rate"), ("zero_miss", "Zero-miss steps")]
    panels = [svg.Panel(title, "slots, share of all experts", _lines(results, name)) for name, title in shown]
    return svg.draw(panels)


def table_csv(results: Sequence[Result]) -> str:
    """A CSV with a row for each policy and pool."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for result in results:
        flat = asdict(result)
        flat["replays_least"], flat["replays_most"] = result.replays
        flat["step_seconds_least"], flat["step_seconds_most"] = result.step_seconds
        writer.writerow([flat[name] for name in _COLUMNS])
    return stream.getvalue()


def document(trace: RoutingTrace, results: Sequence[Result], setting: Setting) -> dict[str, Any]:
    """The JSON document of a run."""
    link = setting.link
    return {
        "schema": SCHEMA,
        "trace": {
            "steps": trace.steps,
            "rows": int(trace.step.size),
            "most_rows": trace.most_rows,
            "layers": list(trace.layers),
            "experts": trace.experts,
            "top_k": trace.top_k,
            "model": trace.model,
            "source": trace.source,
        },
        "setting": {
            "mode": setting.mode,
            "kind": setting.kind.value,
            "bytes_a_slot": setting.bytes_a_slot,
            "warm_steps": setting.warm,
            "steps_a_tick": setting.steps_a_tick,
            "steps_a_pass": setting.steps_a_pass,
            "link": {"bytes_a_second": link.bytes_a_second, "latency_s": link.latency, "step_s": link.step},
            "promotions": setting.rules.promotions,
            "cold_ticks": setting.rules.cold_ticks,
            "recent_steps": setting.rules.recent_steps,
            "margin": None if setting.rules.margin is None else float(setting.rules.margin),
        },
        "results": [asdict(result) for result in results],
    }


def _lines(results: Sequence[Result], attribute: str) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        value = getattr(result, attribute)
        if value is not None:
            lines.setdefault(result.policy, []).append((result.share, value))
    return {name: sorted(points) for name, points in lines.items()}
