"""Everything about a series that can be said without running it."""

import ast
import datetime
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from patches.engine.apply import State
from patches.engine.diff import Hunk, body_start
from patches.engine.judge import Outcome, judge
from patches.engine.make import CONTEXT
from patches.engine.report import verdict_lines
from patches.engine.series import SERIES, Patch, load_series
from patches.engine.text import split_lines
from patches.engine.wheel import Wheel
from patches.tools.place import Place, test_name


@dataclass(frozen=True)
class Finding:
    """One thing to mend, or with `error` unset only to know. `where` is a patch, step or file, `text` one line."""

    error: bool
    where: str
    text: str


def lint(place: Place, wheel: Wheel, today: datetime.date) -> list[Finding]:
    """Every finding on the series: the series itself, then patch by patch, then steps, then what is shared."""
    series = load_series(place.folder)
    outcome = judge(series, wheel)
    found = [Finding(True, SERIES, text) for text in outcome.problems]
    for verdict in outcome.verdicts:
        patch = verdict.patch
        if verdict.state is not State.CLEAN:
            found += [Finding(True, patch.name, line.strip()) for line in verdict_lines(verdict)]
        data = (place.folder / patch.name).read_bytes()
        found += [Finding(True, patch.name, text) for text in _patch(place, patch, data, today)]
    found += [Finding(True, *pair) for pair in _steps(place, series.patches)]
    found += [Finding(True, *pair) for pair in _switches(outcome, wheel)]
    for path, names in outcome.shared.items():
        found.append(Finding(False, path, f"touched by several patches: {', '.join(names)}"))
    return found


def _patch(place: Place, patch: Patch, data: bytes, today: datetime.date) -> Iterator[str]:
    lines = split_lines(data)
    for diff in patch.diffs:
        for hunk in diff.hunks:
            marked = _marked(hunk, lines)
            yield from _context(marked, hunk.line)
            yield from _trailing(marked)
    if not place.tests(patch.name):
        yield f"has no test: expected {place.shown}/tests/{test_name(patch.name)}"
    if patch.header is not None:
        yield from _dates(place, patch, data, datetime.date.fromisoformat(patch.header.last_update), today)


def _context(marked: list[tuple[int, bytes, bytes]], head: int) -> Iterator[str]:
    """More unchanged lines than git would quote: each is one more line that can conflict."""
    runs = [(mark == b" ", len(list(run))) for mark, run in groupby(mark for _, mark, _ in marked)]
    for index, (same, length) in enumerate(runs):
        inner = 0 < index < len(runs) - 1
        if same and length > (2 * CONTEXT if inner else CONTEXT):
            what = "between two changes: split the hunk" if inner else f"at its edge: {CONTEXT} are enough"
            yield f"line {head}: the hunk quotes {length} unchanged lines {what}"


def _trailing(marked: list[tuple[int, bytes, bytes]]) -> Iterator[str]:
    for at, mark, text in marked:
        if mark == b"+" and text != text.rstrip():
            yield f"line {at}: the added line ends in blanks"


def _marked(hunk: Hunk, lines: list[bytes]) -> list[tuple[int, bytes, bytes]]:
    """A hunk's lines: line in the patch from 1, mark (blank, - or +), and text without its newline."""
    found: list[tuple[int, bytes, bytes]] = []
    before, after, at = len(hunk.before), len(hunk.after), hunk.line
    while before or after:
        mark, text = lines[at][:1], lines[at][1:].removesuffix(b"\n")
        before -= mark in (b" ", b"-")
        after -= mark in (b" ", b"+")
        at += 1
        if mark != b"\\":
            found.append((at, mark, text))
    return found


def _dates(place: Place, patch: Patch, data: bytes, stated: datetime.date, today: datetime.date) -> Iterator[str]:
    # Somewhere on earth it is tomorrow already.
    if stated > today + datetime.timedelta(days=1):
        yield f"Last-Update: {stated} is not yet: today is {today}"
    old = _committed(place, patch.name)
    if old is not None and _body(old) != _body(data) and f"Last-Update: {stated}\n".encode() in old and stated < today:
        yield f"Last-Update: {stated}, but the diff changed since: write {today}"


def _committed(place: Place, name: str) -> bytes | None:
    """A patch as the last commit has it; None where git has none."""
    command = ["git", "-C", str(place.root), "show", f"HEAD:./{place.shown}/{name}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def _body(data: bytes) -> bytes:
    lines = split_lines(data)
    return b"".join(lines[body_start(lines) :])


def _steps(place: Place, patches: tuple[Patch, ...]) -> Iterator[tuple[str, str]]:
    known = {patch.name: patch for patch in patches}
    for step in place.steps:
        where = f"step {step} of {step.line}"
        if not step.patches and not step.kernels:
            yield where, "has no patch and no kernel: name one, or retire the step"
        for name in step.patches:
            if name not in known:
                yield where, f"names {name}, which is not in the series"
    for patch in patches:
        if patch.header is None:
            continue
        for line in place.lines:
            owners = [step for step in place.owners(patch.name) if step.line == line]
            if not owners:
                wanted = f"step {patch.header.step} in images/{line}/line.bzl"
                yield patch.name, f"no step of {line} has it: add it to {wanted}"
            if len(owners) > 1:
                yield patch.name, f"several steps of {line} have it: {', '.join(map(str, owners))}: keep one"
            for step in owners:
                if step.name != patch.header.step:
                    yield patch.name, f"Step: {patch.header.step}, but step {step} of {line} has it: make both the same"
                if step.switch != patch.header.switch:
                    stated, wanted = patch.header.switch or "none", step.switch or "none"
                    yield patch.name, f"Switch: {stated}, but step {step} of {line} has {wanted}: make both the same"
    if not place.lines:
        yield SERIES, "no line uses this series: name its overlay in images/<line>/BUILD.bazel"


def _switches(outcome: Outcome, wheel: Wheel) -> Iterator[tuple[str, str]]:
    """Switches that the project's envs.py does not register: torch.compile's cache would not know them."""
    registry = f"{wheel.project}/envs.py"
    if not wheel.has(registry):
        return
    data = outcome.content.get(registry) or wheel.read(registry) or b""
    try:
        registered = set(_registered(data))
    except SyntaxError:
        return
    named = {}
    for verdict in outcome.verdicts:
        header = verdict.patch.header
        if header is not None and header.switch is not None:
            named[header.switch] = verdict.patch.name
    for switch, name in named.items():
        if switch not in registered:
            yield name, f"{switch} is not registered in environment_variables of {registry}"
    for switch in sorted(registered):
        if switch.startswith("VLLM_MOET_") and switch not in named:
            yield registry, f"{switch} is registered, but no patch's header names it"


def _registered(data: bytes) -> Iterator[str]:
    """The keys of the dict environment_variables."""
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            named = isinstance(target, ast.Name) and target.id == "environment_variables"
            if named and isinstance(node.value, ast.Dict):
                keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
                yield from (key for key in keys if isinstance(key, str))
