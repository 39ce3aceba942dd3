"""Arguments of `moet experts simulate`, and what they ask for."""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.files import atomic

from . import sizes, synthetic, trace_files, wording
from .link import Link
from .pool import Kind, slot_bytes
from .rules import PRESETS
from .study import POLICIES, Setting, study
from .synthetic import Synthetic
from .trace import RoutingTrace

_DEFAULT = Synthetic()
_MADE_UP = {
    "steps": "steps",
    "layers": "MoE layers",
    "experts": "routed experts of a layer; for .npy too",
    "top_k": "experts that a row is routed to",
    "rows": "rows of a step",
    "zipf": "popularity of a layer's r-th expert is r to the power of minus this",
    "strength": "how far a topic bends that, in nats",
    "agreement": "correlation of neighbouring layers",
    "drift": "steps after which a topic is 1/e of what it was",
    "seed": "of all of it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    parser.add_argument(
        "trace",
        type=Path,
        nargs="*",
        metavar="TRACE",
        help="a trace (.npz, .jsonl), or .npy routing of requests (default: made up)",
    )
    made = parser.add_argument_group("a trace that is made up")
    for name, meaning in _MADE_UP.items():
        default = getattr(_DEFAULT, name)
        option = f"--{name.replace('_', '-')}"
        made.add_argument(option, type=type(default), metavar="N", help=f"{meaning} (default: {default:g})")
    made.add_argument("--save-trace", type=Path, metavar="FILE", help="keep the trace, as .npz or .jsonl")
    pools = parser.add_argument_group("pools")
    pools.add_argument(
        "--mode", choices=("demand", "promote"), default="demand", help="base slots, or delta slots (default: demand)"
    )
    pools.add_argument(
        "--kind", choices=[kind.value for kind in Kind], help="what a slot holds (default: base; promote: quintal)"
    )
    pools.add_argument("--hidden", type=int, default=4096, metavar="N", help="the model's hidden size (default: 4096)")
    pools.add_argument("--intermediate", type=int, default=2048, metavar="N", help="an expert's (default: 2048)")
    pools.add_argument(
        "--pool",
        action="append",
        metavar="SIZE",
        help="a size: 25%% of all experts, 96 slots a layer, 24GiB; repeat (default: 8 shares)",
    )
    pools.add_argument("--quotas", type=Path, metavar="FILE", help="slots by layer: a JSON list; one more pool")
    pools.add_argument("--shared", action="store_true", help="layers share one quota, rather than one each")
    pools.add_argument("--force-pool", action="store_true", help="simulate pools below their floor too")
    how = parser.add_argument_group("policies and costs")
    how.add_argument("--policy", action="append", choices=POLICIES, help="a policy; repeat (default: all)")
    how.add_argument("--rules", choices=list(PRESETS), default="ours", help="the rules of `ours` (default: ours)")
    how.add_argument(
        "--warm", type=_share, default=0.2, metavar="SHARE", help="of steps: run, not counted (default: 0.2)"
    )
    how.add_argument(
        "--pcie-gbs", type=float, default=50.0, metavar="GB/S", help="rate of large copies to the card (default: 50)"
    )
    how.add_argument(
        "--copy-us", type=float, default=10.0, metavar="US", help="of a copy, beyond its bytes (default: 10)"
    )
    how.add_argument(
        "--step-ms", type=float, default=10.0, metavar="MS", help="a step that misses nothing (default: 10)"
    )
    how.add_argument("--tick-s", type=float, default=5.0, metavar="S", help="after which heat halves (default: 5)")
    how.add_argument(
        "--pass-s", type=float, default=1.0, metavar="S", help="from one promotion pass to the next (default: 1)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--no-plots", action="store_true", help="tables only")
    output.add_argument("--csv", type=Path, metavar="FILE", help="write the results as CSV")
    output.add_argument("--svg", type=Path, metavar="FILE", help="write the plots as SVG")


def run(options: argparse.Namespace, out: Output) -> int:
    """Does what they ask for; returns the exit status. Raises UserError, OSError."""
    _check(options)
    found = _trace(options, out)
    kind = Kind(options.kind or ("base" if options.mode == "demand" else "quintal"))
    try:
        each = slot_bytes(kind, options.hidden, options.intermediate)
        warm = int(options.warm * found.steps)
        link = Link(options.pcie_gbs * 1e9, options.copy_us / 1e6, options.step_ms / 1e3)
        rules = PRESETS[options.rules]
        setting = Setting(
            options.mode, kind, each, rules, link, options.tick_s, options.pass_s, warm, options.force_pool
        )
        shape = (len(found.layers), found.experts)
        texts = options.pool or ([] if options.quotas else sizes.DEFAULT)
        pools = [sizes.quotas(text, *shape, each, options.shared) for text in texts]
        if options.quotas is not None:
            pools.append(sizes.from_file(options.quotas, shape[0]))
        names = [name for name in POLICIES if not options.policy or name in options.policy]
        with _bar(out, found.steps * len(names) * len(pools)) as progress:
            results = study(
                found, sorted(set(pools), key=lambda quotas: (sum(quotas), quotas)), names, setting, progress
            )
    except ValueError as error:
        raise UserError(str(error)) from None
    if options.csv is not None:
        atomic.write(options.csv, wording.table_csv(results).encode())
    if options.svg is not None:
        atomic.write(options.svg, wording.drawing(results).encode())
    wording.show(found, results, setting, not options.no_plots, out)
    out.document(wording.document(found, results, setting))
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raises UserError on arguments that do not go together."""
    given = [name for name in _MADE_UP if getattr(options, name) is not None]
    if options.trace and set(given) - {"experts"}:
        raise UserError(
            f"--{given[0].replace('_', '-')}: is of a trace that is made up; leave out {options.trace[0]}, or it"
        )
    if options.trace and given and {path.suffix for path in options.trace} != {".npy"}:
        raise UserError(f"--experts: {options.trace[0]} says how many a layer has")
    for name in ("tick_s", "pass_s"):
        if not 0 < getattr(options, name) < 1e6:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)}: expected seconds above 0")


def _trace(options: argparse.Namespace, out: Output) -> RoutingTrace:
    if options.trace:
        found = trace_files.load(options.trace, options.experts)
    else:
        spec = Synthetic(**{name: getattr(options, name) for name in _MADE_UP if getattr(options, name) is not None})
        with _bar(out, spec.steps) as progress:
            found = synthetic.make(spec, progress)
    if options.save_trace is not None:
        trace_files.save(found, options.save_trace)
        out.note(f"{options.save_trace}: written")
    return found


@contextmanager
def _bar(out: Output, total: int) -> Iterator[Callable[[int], None]]:
    """Counts steps on a terminal."""
    done = shown = 0
    with out.live() as draw:

        def advance(steps: int) -> None:
            nonlocal done, shown
            done += steps
            if draw is not None and (done - shown) * 100 >= total:
                shown = done
                draw(Text(f"{done:,} of {total:,} steps"))

        yield advance


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 0.9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share of 0 to 0.9")
    return share
