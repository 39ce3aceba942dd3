"""The doctor's report: for people, and as JSON."""

from typing import Any

from patches.engine.apply import State
from patches.tools.diagnosis import Diagnosis, FileFinding, HunkFinding, PatchFinding, Verdict
from patches.tools.place import Place
from tools.cli.output import Output

SCHEMA = "moet.patch-doctor.v1"


def as_json(place: Place, pinned: dict[str, Any], found: list[Diagnosis], written: str | None) -> dict[str, Any]:
    """The report on all versions as plain data."""
    return {
        "schema": SCHEMA,
        "series": place.shown,
        "lines": list(place.lines),
        "pinned": pinned,
        "needs_work": any(one.needs_work for one in found),
        "written": written,
        "versions": [_version(place, one) for one in found],
    }


def show(place: Place, found: Diagnosis, out: Output) -> None:
    """Print the report on one version: a table, then what a person must look at, then one line that sums it up."""
    size = f"{found.size / 1e6:,.1f} MB, " if found.size >= 1e5 else ""
    out.line(f"{found.project} {place.pin.version} -> {found.version}")
    out.line(f"{found.file}: {size}sha256 {found.sha256}")
    rows = []
    for one in found.patches:
        steps = ", ".join(str(step) for step in place.owners(one.patch.name)) or "none"
        rows.append([one.patch.name, steps, _stands(one), one.own.value])
    columns = ["patch", "step", "verdict", "independent of it"]
    shown = 4 if any(one.verdict is not one.own for one in found.patches) else 3
    out.table(columns[:shown], [row[:shown] for row in rows])
    for one in found.patches:
        if one.verdict is not Verdict.CLEAN:
            for line in _patch_lines(place, one, place.pin.version, found.version):
                out.line(line, style=_style(line))
            out.line()
    for path, names in found.shared.items():
        out.line(f"touched by several steps: {path}: " + ", ".join(f"{step} ({patch})" for patch, step in names))
    for problem in found.problems:
        out.line(f"problem: {problem}")
    out.line(summary(found))


def summary(found: Diagnosis) -> str:
    """One line: how many patches stand how, and whether that is work."""
    counted = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    end = "needs work" if found.needs_work else "moet patch refresh or --write renews the line numbers"
    if not found.needs_work and set(found.counts) <= {Verdict.CLEAN.value}:
        end = "nothing to do"
    problems = f", {len(found.problems)} problems" if found.problems else ""
    return f"{found.project} {found.version}: {len(found.patches)} patches: {counted}{problems}; {end}"


def _stands(one: PatchFinding) -> str:
    if one.verdict is Verdict.WAITS:
        return f"waits for {', '.join(one.waits_for)}"
    return str(one.verdict.value)


def _patch_lines(place: Place, one: PatchFinding, old: str, new: str) -> list[str]:
    lines = [f"{one.patch.name}: {_stands(one)}"]
    if one.verdict is Verdict.WAITS:
        lines[0] += f"; independent of it: {one.own.value}"
    elif one.waits_for:
        lines.append(f"  also waits for {', '.join(one.waits_for)}")
    if one.note:
        lines.append(f"  {one.note}")
    header = one.patch.header
    lines += [
        f"  step {step} ({step.line}), switch {step.switch or 'none'}, default {step.default}"
        for step in place.owners(one.patch.name)
    ]
    lines.append(f"  tests: {', '.join(place.tests(one.patch.name)) or 'none'}")
    lines.append(f"  drop when: {header.drop_when if header else ''}")
    for file in one.files:
        lines += _file_lines(file, old, new)
    return lines


def _file_lines(file: FileFinding, old: str, new: str) -> list[str]:
    offsets = {hunk.offset for hunk in file.hunks}
    if file.verdict is Verdict.OFFSET and len(offsets) == 1:
        (offset,) = offsets
        return [f"  {file.path}: offset {offset:+d}"]
    lines = [f"  {file.path}: {file.verdict.value}" + (f": {file.note}" if file.note else "")]
    for candidate, there in file.candidates:
        lines.append(f"    maybe now {candidate.path} ({candidate.share:.0%} of its lines are there): {there}")
    if file.verdict is Verdict.CLEAN:
        return lines
    for hunk in file.hunks:
        if file.verdict is Verdict.GONE and not hunk.upstream:
            continue
        lines += _hunk_lines(hunk, file.path, old, new)
    return lines


def _hunk_lines(hunk: HunkFinding, path: str, old: str, new: str) -> list[str]:
    head = f"    hunk {hunk.number} (patch line {hunk.patch_line}): "
    if hunk.state is State.SUPERSEDED and hunk.upstream:
        there = hunk.upstream
        where = f"line {there.line}" if there.path == path else f"{there.path}:{there.line}"
        return [f"{head}already upstream, {where}" + (f", {hunk.note}" if hunk.note else "")]
    if hunk.state is State.OFFSET:
        return [f"{head}offset {hunk.offset:+d}"]
    if hunk.state is State.CLEAN:
        return [f"{head}clean"]
    lines = [f"{head}conflict" + (f": {hunk.note}" if hunk.note else "")]
    if hunk.change:
        lines[0] += f"; upstream there, {old} -> {new}:"
        lines += [f"      {line}" for line in hunk.change]
    return lines


def _style(line: str) -> str:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return styles.get(line[6:7], "") if line.startswith("      ") else ""


def _version(place: Place, found: Diagnosis) -> dict[str, Any]:
    return {
        "version": found.version,
        "wheel": {"file": found.file, "sha256": found.sha256, "size": found.size},
        "needs_work": found.needs_work,
        "counts": found.counts,
        "patches": [_patch(place, one) for one in found.patches],
        "shared": [
            {"path": path, "by": [{"patch": patch, "step": step} for patch, step in by]}
            for path, by in found.shared.items()
        ],
        "problems": list(found.problems),
    }


def _patch(place: Place, one: PatchFinding) -> dict[str, Any]:
    header = one.patch.header
    return {
        "name": one.patch.name,
        "verdict": one.verdict.value,
        "own": one.own.value,
        "waits_for": list(one.waits_for),
        "note": one.note,
        "steps": [step.as_json() for step in place.owners(one.patch.name)],
        "switch": header.switch if header else None,
        "drop_when": header.drop_when if header else None,
        "tests": list(place.tests(one.patch.name)),
        "files": [
            {
                "path": file.path,
                "verdict": file.verdict.value,
                "note": file.note,
                "maybe_now": [
                    {"path": candidate.path, "share": round(candidate.share, 3), "there": there}
                    for candidate, there in file.candidates
                ],
                "hunks": [_hunk(hunk) for hunk in file.hunks],
            }
            for file in one.files
        ],
    }


def _hunk(hunk: HunkFinding) -> dict[str, Any]:
    return {
        "number": hunk.number,
        "patch_line": hunk.patch_line,
        "state": {State.OFFSET: "offset"}.get(hunk.state, hunk.state.value),
        "offset": hunk.offset,
        "note": hunk.note,
        "upstream_change": list(hunk.change),
        "upstream": {"path": hunk.upstream.path, "line": hunk.upstream.line} if hunk.upstream else None,
    }
