"""docs/reference.md, from the verbs themselves. `bazel run //tools/moet:reference` writes it."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.files import atomic
from tools.moet import main as program
from tools.moet.verb import Verb

PATH = Path("docs/reference.md")

_HEAD = """# Reference

Every verb of `moet`. Written by `bazel run //tools/moet:reference` from the code; do not edit.

In the source tree, `bazel run //tools/moet -- GROUP VERB ...`; on a host without Bazel or tree, the one file that
`bazel build //tools/moet:archive` makes (`bazel-bin/tools/moet/moet.pyz`), with any CPython from 3.11 on.

Results are on stdout, progress and messages on stderr. With `--json`, stdout is one JSON document that names its
`schema`. Paths are meant from the folder that the command is given in.
"""


def text() -> str:
    """Returns the whole page. Raises ImportError where a verb cannot be loaded."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield _HEAD
    yield "| exit status | meaning |\n|---|---|"
    yield from (f"| {status} | {meaning} |" for status, meaning in program.EXITS)
    yield "\n| verb | does |\n|---|---|"
    listed = [(group, name) for group, (_, names) in program.GROUPS.items() for name in names]
    loaded = {one: program.verb(*one) for one in listed}
    for (group, name), found in loaded.items():
        yield f"| [`moet {group} {name}`](#moet-{group}-{name}) | {_cell(found.summary)} |"
    for group, (summary, names) in program.GROUPS.items():
        yield f"\n## moet {group}\n\n{summary[:1].upper()}{summary[1:]}."
        for name in names:
            yield from _verb(group, name, loaded[group, name])
    yield ""


def _verb(group: str, name: str, found: Verb) -> Iterator[str]:
    added = argparse.ArgumentParser(prog="moet").add_subparsers()
    parser = program.add_verb(added, group, name)
    yield f"\n### moet {group} {name}\n\n{found.summary[:1].upper()}{found.summary[1:]}.\n"
    yield f"```\n{_synopsis(parser, group, name)}\n```\n\n{found.description.strip()}\n"
    yield "| argument | meaning |\n|---|---|"
    # Python offers an ArgumentParser's arguments in its help text alone.
    for action in parser._actions:
        if action.dest != "help":
            yield f"| {_name(action)} | {_cell(_help(action))} |"
    if found.examples:
        yield "\n```"
        yield from (f"# {meaning}\nmoet {command}" for command, meaning in found.examples)
        yield "```"
    if found.exits:
        yield "\n| exit status | meaning |\n|---|---|"
        yield from (f"| {status} | {_cell(meaning)} |" for status, meaning in found.exits)


def _synopsis(parser: argparse.ArgumentParser, group: str, name: str) -> str:
    parts = [f"moet {group} {name}"]
    for action in sorted(parser._actions, key=lambda action: not action.option_strings):
        if action.dest == "help":
            continue
        shown = _invocation(action)
        parts.append(shown if _required(action) else f"[{shown}]")
    lines = [""]
    for part in parts:
        wide = len(lines[-1]) + 1 + len(part) > 110
        lines[-1:] = [lines[-1], f"    {part}"] if wide else [f"{lines[-1]} {part}" if lines[-1] else part]
    return "\n".join(lines)


def _required(action: argparse.Action) -> bool:
    return action.required if action.option_strings else action.nargs not in ("?", "*", argparse.REMAINDER)


def _invocation(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        # A command's own options would be taken for the verb's.
        return f"-- {value}" if action.metavar == "COMMAND" else value
    return action.option_strings[-1] + (f" {value}" if value else "")


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    choices = "|".join(map(str, action.choices)) if action.choices is not None else None
    named = action.metavar if isinstance(action.metavar, str) else None
    word = named or choices or action.dest.upper()
    return f"{word}..." if action.nargs in ("+", "*", argparse.REMAINDER) else word


def _name(action: argparse.Action) -> str:
    value = _value(action)
    words = [f"{option} {value}".strip() for option in action.option_strings] or [value]
    return ", ".join(f"`{word}`" for word in words).replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {"default": action.default, "dest": action.dest, "prog": "moet"}


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def main() -> int:
    """Writes the page into the tree that `bazel run` was given in; returns the exit status."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    atomic.write(root / PATH, text().encode())
    print(f"wrote {PATH}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
