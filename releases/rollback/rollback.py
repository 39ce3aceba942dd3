"""Going back to a release of a line, or on to one: choose it, get it into the engine, then say it is current."""

from dataclasses import dataclass
from typing import Any

from releases.known import Known
from releases.rollback import rollback_sources, rollback_switches, rollback_target, state
from releases.rollback.rollback_sources import Source, Sources
from releases.rollback.rollback_switches import Instead
from releases.rollback.rollback_target import Target
from releases.rollback.state import Place, State
from releases.tag import Tag
from tools.cli.errors import UserError
from tools.cli.output import Output

SCHEMA = "moet.image-rollback.v1"


@dataclass(frozen=True)
class Result:
    """What a rollback did, or would do where `dry_run`.

    Attributes:
        line: the line.
        target: what was chosen.
        before: what was current, None where nothing was.
        after: what is current now.
        changed: whether that is another than before.
        source: where the image came from; in a dry run None where the engine does not have it.
        tried: in words, what did not have it.
        instead: what switches would do instead; None where nothing was current, or records are missing.
        dry_run: whether nothing was done.
    """

    line: str
    target: Target
    before: Place | None
    after: Place
    changed: bool
    source: Source | None
    tried: tuple[str, ...]
    instead: Instead | None
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """The result as JSON has it."""
        instead = self.instead or Instead((), (), ())
        return {
            "schema": SCHEMA,
            "line": self.line,
            "what": self.target.what,
            "why": self.target.why,
            "before": vars(self.before) if self.before else None,
            "after": vars(self.after),
            "changed": self.changed,
            "source": self.source,
            "tried": list(self.tried),
            "switches": [{"switch": one, "value": value, "step": step} for one, value, step in instead.settings],
            "off_by_default": [{"switch": one, "step": step} for one, step in instead.off],
            "beyond_switches": list(instead.beyond),
            "undo": undo_command(self.line) if self.before and self.changed else None,
            "dry_run": self.dry_run,
        }


def undo_command(line: str) -> str:
    """The command that undoes the last change of a line."""
    return f"moet image rollback {line} --undo"


def rollback(
    known: Known, line: str, to: str | None, undo: bool, sources: Sources, out: Output, dry_run: bool = False
) -> Result:
    """Makes a release current on this host; says first what a switch would do instead.

    See rollback_target.choose for `to` and `undo`. The state is changed last, in one stroke: whenever this is stopped,
    it is the old one or the new one, and doing it again completes it. With `dry_run` nothing is changed.

    Raises UserError where there is no such release, it cannot be had, or another process is at it.
    """
    if line not in rollback_target.lines(known):
        there = ", ".join(rollback_target.lines(known)) or "none yet"
        raise UserError(f"{line!r} is no line with a release; there is: {there}")
    if dry_run:
        return _plan(known, State.read(line), to, undo, sources, out)
    with state.locked(line, out.note):
        found = State.read(line)
        plan = _plan(known, found, to, undo, sources, out, quiet=True)
        had = rollback_sources.obtain(sources, known, plan.target.entry, out)
        if plan.changed:
            found.change(plan.target.what, plan.after, plan.target.why).write()
    result = Result(
        line, plan.target, plan.before, plan.after, plan.changed, had.source, had.tried, plan.instead, dry_run=False
    )
    _report(result, out)
    return result


def _plan(
    known: Known, found: State, to: str | None, undo: bool, sources: Sources, out: Output, quiet: bool = False
) -> Result:
    target = rollback_target.choose(known, found, to, undo)
    entry = target.entry
    engine = sources.engine.name.partition(" ")[0]
    after = Place(str(entry.tag), entry.digest, entry.image_id, engine)
    there = rollback_sources.held(sources, entry)
    instead = _instead(known, found, target, out)
    changed = after != found.current
    left = found.current.tag if found.current else "nothing recorded"
    if changed:
        out.note(f"{found.line}: {left} -> {entry.tag} ({target.why})")
        for text in instead.lines(left) if instead else []:
            out.note(text)
    result = Result(
        found.line, target, found.current, after, changed, "engine" if there else None, (), instead, dry_run=True
    )
    if not quiet:
        where = f"is in {sources.engine.name}" if there else f"is not in {sources.engine.name}: {_where(sources)}"
        out.line(f"{entry.tag} {where}; nothing was changed")
        out.document(result.document())
    return result


def _where(sources: Sources) -> str:
    places = []
    if sources.registry and not sources.rebuild:
        places.append(f"it would be pulled from {sources.registry}")
    if sources.root is not None:
        places.append("it would be built from its commit")
    return ", or else ".join(places) or "there is no registry and no source tree to have it from"


def _instead(known: Known, found: State, target: Target, out: Output) -> Instead | None:
    if found.current is None or found.current.tag == str(target.entry.tag):
        return None
    try:
        current = known.record(Tag.parse(found.current.tag)).moet
        return rollback_switches.compare(current, known.record(target.entry.tag).moet)
    except UserError as error:
        # Advice alone; who goes back in a hurry need not mend the tree first.
        out.note(f"what switches would do instead is not known: {error}")
        return None


def _report(result: Result, out: Output) -> None:
    came = {
        "engine": "was in the engine",
        "registry": "was pulled by its digest",
        "rebuild": "was built from its commit",
    }[result.source or "engine"]
    after = result.after
    if not result.changed:
        out.line(f"{after.tag} is current on this host already; it {came}")
    else:
        out.line(f"{after.tag} is current now; it {came}")
    out.line(f"image id {after.image_id}")
    out.line(f"digest {after.digest}")
    out.line(f"containers that run are left alone: start yours anew from {after.tag} in {after.engine}")
    if result.changed and result.before:
        out.line(f"back to {result.before.tag}: {undo_command(result.line)}")
    out.document(result.document())
