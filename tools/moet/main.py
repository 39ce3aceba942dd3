"""moet: images, patches and releases. `moet GROUP VERB ...`."""

import argparse
import difflib
import importlib
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.interrupts import TerminatedError, unwound
from tools.moet.verb import Verb

GROUPS = {
    "image": (
        "what an image is made of, how two differ, and which one is current",
        ["explain", "diff", "list", "verify", "sbom", "rollback", "load", "push"],
    ),
    "patch": ("the patch series of a line", ["new", "refresh", "lint", "show", "doctor"]),
    "release": ("releases, driven by CHANGELOG.md", ["cut", "check", "publish", "receipt", "bisect"]),
    "serve": (
        "how a line is served, and with what",
        [
            "up", "down", "status", "generations", "diff", "rollback", "switch",
            "print", "knobs", "render", "preflight", "check", "watch",
        ],
    ),
    "plan": ("what a server will need and hold, before it is started", ["kv", "experts"]),
    "experts": (
        "the routed experts of a model: fewer bits, and where they are kept",
        ["quantize", "dequantize", "verify", "inspect", "build-store", "stat", "simulate"],
    ),
    "kvcache": ("the KV cache that the server keeps on disk", ["ttl", "stat"]),
}

# Exit statuses of every verb, beside those that it has of its own.
EXITS = (
    (0, "done"),
    (1, "not done; a line on stderr says why, and with `--json` a document of schema moet.error.v1"),
    (2, "wrong usage"),
    (130, "interrupted (Ctrl-C)"),
    (141, "whoever read the output went away"),
    (143, "terminated (SIGTERM)"),
)


def verb(group: str, name: str) -> Verb:
    """Returns a verb; only its module is imported."""
    module = importlib.import_module(f"tools.moet.verbs.{group}_{name.replace('-', '_')}")
    found: Verb = module.VERB
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status (EXITS, or the verb's own)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # `bazel run` changes the folder; paths are meant from where the person stands.
    if folder := os.environ.get("BUILD_WORKING_DIRECTORY"):
        os.chdir(folder)
    try:
        options = _options(given)
        with unwound():
            status = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at its end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def parser(wanted: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Returns the parser. Only the verb that `wanted` ([group, verb]) names is loaded with its arguments, or all."""
    whole = argparse.ArgumentParser(
        prog="moet",
        description="Images, patches and releases of Moet. `moet GROUP VERB --help` says what a verb takes.",
        allow_abbrev=False,
    )
    groups = whole.add_subparsers(metavar="GROUP", required=True)
    exact = len(wanted) == 2 and wanted[0] in GROUPS and wanted[1] in GROUPS[wanted[0]][1]
    for group, (summary, names) in GROUPS.items():
        one = groups.add_parser(group, help=summary, description=summary.capitalize() + ".", allow_abbrev=False)
        verbs = one.add_subparsers(metavar="VERB", required=True)
        for name in names:
            if exact and [group, name] != list(wanted):
                continue
            try:
                add_verb(verbs, group, name)
            except ImportError as error:
                # A list of verbs is of use also where one of them cannot run.
                if exact:
                    raise
                verbs.add_parser(name, help=f"(cannot run here: {error})")
    return whole


def add_verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", group: str, name: str
) -> argparse.ArgumentParser:
    """Adds a verb with all its arguments, and returns its parser."""
    found = verb(group, name)
    sub = verbs.add_parser(
        name,
        help=found.summary,
        description=found.description,
        epilog=_epilog(found),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    sub.add_argument("--json", action="store_true", help="print the result as one JSON document")
    sub.add_argument(
        "--tree",
        type=Path,
        metavar="DIR",
        help="Moet's source tree (default: the one around this folder, else the releases that this program knows)",
    )
    found.arguments(sub)
    sub.set_defaults(run=found.run, prog=f"moet {group} {name}")
    return sub


class _Told(Output):
    """An Output that knows whether the run's one document is out."""

    told = False

    def document(self, value: dict[str, Any]) -> None:
        self.told = self.as_json
        super().document(value)


def _options(given: list[str]) -> argparse.Namespace:
    whole = parser(given[:2])
    if given and not given[0].startswith("-"):
        if given[0] not in GROUPS:
            whole.error(_unknown("group", given[0], list(GROUPS), "moet"))
        names = GROUPS[given[0]][1]
        if len(given) > 1 and not given[1].startswith("-") and given[1] not in names:
            whole.error(_unknown(f"verb of {given[0]}", given[1], names, f"moet {given[0]}"))
    return whole.parse_args(given)


def _unknown(what: str, word: str, known: list[str], prefix: str) -> str:
    near = [f"{prefix} {name}" for name in difflib.get_close_matches(word, known, 1)]
    near = near or [f"moet {group} {word}" for group, (_, names) in GROUPS.items() if word in names]
    hint = f"did you mean `{'` or `'.join(near)}`? " if near else ""
    return f"{word!r} is no {what}; {hint}there are {', '.join(known)}"


def _epilog(found: Verb) -> str:
    """Examples and exit statuses, as --help ends with them."""
    examples = [f"  moet {command}\n      {meaning}" for command, meaning in found.examples]
    exits = [f"  {status:<3} {meaning}" for status, meaning in found.exits]
    parts = [("examples:", examples), ("exit status, beside 0, 1 and 2:", exits)]
    return "\n\n".join("\n".join([title, *lines]) for title, lines in parts if lines)


def _run(options: argparse.Namespace) -> int:
    out = _Told(options.json)
    try:
        return int(options.run(options, out))
    except UserError as error:
        return _failed(options, out, str(error), error.status)
    except BrokenPipeError as error:
        if _stdout_is_gone():
            raise
        return _failed(options, out, _os_error(error))
    except OSError as error:
        return _failed(options, out, _os_error(error))
    except KeyboardInterrupt:
        return _failed(options, out, "interrupted", 130)
    except TerminatedError:
        return _failed(options, out, "terminated", 143)


def _failed(options: argparse.Namespace, out: _Told, why: str, status: int = 1) -> int:
    print(f"{options.prog}: {why}", file=sys.stderr)
    if not out.told:
        out.document({"schema": "moet.error.v1", "command": options.prog, "error": why, "exit": status})
    return status


def _os_error(error: OSError) -> str:
    return (f"{error.filename}: " if error.filename else "") + (error.strerror or str(error))


def _stdout_is_gone() -> bool:
    """Whether it was stdout's reader, and not a program of the verb's own, that closed its pipe."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))


if __name__ == "__main__":
    sys.exit(main())
