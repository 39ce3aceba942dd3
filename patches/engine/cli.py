"""Builds an overlay: what Bazel runs. People use `moet patch`."""

import argparse
import sys
from pathlib import Path

from patches.engine import report
from patches.engine.errors import PatchError
from patches.engine.judge import judge
from patches.engine.overlay import write_overlay
from patches.engine.series import load_series
from patches.engine.wheel import Wheel


def main(arguments: list[str]) -> int:
    """Write the overlay if every patch applies exactly. Returns 0, or 1 after a report and one clear line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        with Wheel(options.wheel) as wheel:
            return _build(options, wheel)
    except PatchError as error:
        print(f"patches: {error}", file=sys.stderr)
    except OSError as error:
        print(f"patches: {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


def _build(options: argparse.Namespace, wheel: Wheel) -> int:
    expected = f"{wheel.project}-{wheel.version}"
    if options.series_dir.resolve().name != expected:
        raise PatchError(
            f"{options.series_dir}: holds the patches of {options.series_dir.resolve().name}, but the wheel is "
            f"{expected}: rename the folder; moet patch doctor shows what another version breaks"
        )
    outcome = judge(load_series(options.series_dir), wheel)
    if outcome.ok:
        write_overlay(outcome, wheel, options.out, options.manifest)
        return 0
    print(report.as_text(outcome, wheel), end="", file=sys.stderr)
    print(f"patches: {report.summary(outcome, wheel)}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="patches", description="Build the overlay of a patch series.")
    parser.add_argument("--wheel", type=Path, required=True, help="the pinned wheel")
    parser.add_argument("--series-dir", type=Path, required=True, help="folder with `series` and the patches")
    parser.add_argument("--out", type=Path, required=True, help="folder for the changed files; absent or empty")
    parser.add_argument("--manifest", type=Path, required=True, help="overlay.json")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
