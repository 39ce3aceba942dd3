"""The patch engine's command line: check, build, edit, refresh."""

import argparse
import datetime
import json
import os
import sys
from pathlib import Path

from patches.engine import edit, report
from patches.engine.errors import PatchError
from patches.engine.judge import Outcome, judge
from patches.engine.overlay import write_overlay
from patches.engine.series import load_series
from patches.engine.wheel import Wheel


def main(arguments: list[str]) -> int:
    """Run one command. Returns the exit status: 0, or 1 after one clear line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        with Wheel(options.wheel) as wheel:
            return _run(options, wheel)
    except PatchError as error:
        print(f"patches: {error}", file=sys.stderr)
    except OSError as error:
        print(f"patches: {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


def _run(options: argparse.Namespace, wheel: Wheel) -> int:
    folder = _series_folder(options.series_dir)
    if options.command == "edit":
        print("\n".join(edit.take_out(wheel, folder, options.name, options.files, options.to)))
        return 0
    if options.command == "refresh":
        if options.source:
            print(edit.read_back(wheel, folder, options.name, options.source, options.date))
        else:
            print(edit.rebase(wheel, folder, options.name, options.date))
        return 0
    expected = f"{wheel.project}-{wheel.version}"
    if folder.resolve().name != expected and not (options.command == "check" and options.bump):
        raise PatchError(
            f"{folder}: holds the patches of {folder.resolve().name}, but the wheel is {expected}: "
            "rename the folder, or check with --bump to see what the other version breaks"
        )
    outcome = judge(load_series(folder), wheel)
    if options.command == "build" and outcome.ok:
        write_overlay(outcome, wheel, options.out, options.manifest)
    return _tell(options, outcome, wheel)


def _tell(options: argparse.Namespace, outcome: Outcome, wheel: Wheel) -> int:
    if options.json:
        print(json.dumps(report.as_json(outcome, wheel), indent=2))
    elif not outcome.ok or options.command == "check":
        print(report.as_text(outcome, wheel), end="", file=sys.stdout if outcome.ok else sys.stderr)
    if not outcome.ok:
        print(f"patches: {report.summary(outcome, wheel)}", file=sys.stderr)
    return 0 if outcome.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="patches", description="Hold a patch series against the pinned wheel.")
    parser.add_argument("--wheel", type=Path, required=True, help="the pinned wheel")
    parser.add_argument(
        "--series-dir", type=Path, required=True, help="folder with `series` and the patches, or `series`"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="judge every patch; write nothing")
    check.add_argument("--bump", action="store_true", help="the wheel may be another version than the folder's")
    build = commands.add_parser("build", help="write the overlay, if every patch applies exactly")
    build.add_argument("--out", type=_path, required=True, help="folder for the changed files; absent or empty")
    build.add_argument("--manifest", type=_path, required=True, help="overlay.json")
    out = commands.add_parser("edit", help="take a patch's files out to edit them")
    out.add_argument("name", help="the patch, new or listed")
    out.add_argument("files", nargs="*", help="further files of the wheel to take out")
    out.add_argument("--to", type=_path, required=True, help="folder to write into")
    back = commands.add_parser("refresh", help="make a patch anew")
    back.add_argument("name", help="the patch, new or listed")
    back.add_argument(
        "--date",
        type=datetime.date.fromisoformat,
        default=datetime.date.today(),
        help="for Last-Update; default: today",
    )
    back.add_argument(
        "--from",
        dest="source",
        type=_path,
        help="folder that `edit` wrote; without it, only line numbers are renewed",
    )
    for command in (check, build):
        command.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _series_folder(path: Path) -> Path:
    """The patch folder. A series file is followed to where it really lies, out of Bazel's tree of links."""
    return path.resolve().parent if path.is_file() else path


def _path(text: str) -> Path:
    """A path as typed: `bazel run` changes the folder and leaves the old one in the environment."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "")) / text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
