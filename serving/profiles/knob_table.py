"""The table of knobs in docs/operate.md, from the profile. `bazel run //serving/profiles:knob_table` writes it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from serving.profiles import load, values
from serving.profiles.model import Knob, Profile
from tools.files import atomic

PAGE = Path("docs/operate.md")
LINE = "dsv41"
BEGIN = "<!-- Written by `bazel run //serving/profiles:knob_table`; do not edit. -->"
END = "<!-- End of what is written. -->"


def table(profile: Profile) -> str:
    """The lines between BEGIN and END."""
    return "\n".join(_lines(profile))


def replaced(page: str, lines: str) -> str:
    """The page with `lines` between BEGIN and END. Raises ValueError where it has not both, once and in order."""
    head, begin, rest = page.partition(f"{BEGIN}\n")
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in tail:
        raise ValueError(f"{PAGE}: expected {BEGIN!r} and {END!r} once each, on lines of their own")
    return f"{head}{begin}{lines}\n{end}{tail}"


def _lines(profile: Profile) -> Iterator[str]:
    yield "| knob | default | takes | meaning |"
    yield "|---|---|---|---|"
    for knob in profile.knobs.values():
        default = f"`{values.show(knob.default)}`" if knob.default is not None else "must be set" * knob.required
        yield f"| `{knob.name}` | {default} | {_cell(values.expected(knob))} | {_cell(knob.meaning)}{_refused(knob)} |"


def _refused(knob: Knob) -> str:
    reasons: dict[str, list[str]] = {}
    for value, reason in knob.refused.items():
        reasons.setdefault(reason, []).append(f"`{value}`")
    return "".join(f"; refused: {', '.join(found)}: {_cell(reason)}" for reason, found in reasons.items())


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Writes the table into the tree that `bazel run` was given in; returns the exit status."""
    path = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")) / PAGE
    atomic.write(path, replaced(path.read_text(encoding="utf-8"), table(load.load(LINE))).encode())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
