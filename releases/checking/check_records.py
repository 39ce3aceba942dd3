"""A release's entry against its record and the releases before it."""

from collections.abc import Iterator, Sequence

from images.manifest import model
from releases.changelog.entry import Entry
from releases.changelog.problem import Problem
from releases.cutting import delta, lineage
from releases.cutting.draft import TODO
from releases.known import RECORDS
from releases.record import Record

REVISION = "org.opencontainers.image.revision"
_RELEASE = "org.moet.release"
_BASE = "org.moet.base"


def texts(entry: Entry) -> list[tuple[int, str]]:
    """Every sentence of an entry, with its line: the summary, bullets and evidence."""
    found = [(entry.line, entry.summary)]
    for bullets in (*entry.sections.values(), entry.evidence):
        found += [(bullet.line, bullet.text) for bullet in bullets]
    return found


def words(entry: Entry) -> Iterator[Problem]:
    """What a person has left out."""
    if not any(entry.sections.values()):
        yield Problem(entry.line, f"{entry.tag}: says nothing of what is different: write at least one bullet")
    for line, text in texts(entry):
        if TODO in text:
            yield Problem(line, f"{entry.tag}: is not written yet: {text[text.index(TODO) :]}")


def record(entry: Entry, found: Record | None) -> Iterator[Problem]:
    """What the entry says otherwise than its record, which its digest covers."""
    where = f"{RECORDS}/{entry.tag.line}/{entry.tag.name}"
    if found is None:
        yield Problem(entry.line, f"{entry.tag}: {where} is missing: moet release cut writes it; restore it from git")
        return
    try:
        manifest = found.moet
        labels = dict(found.oci_config["config"]["Labels"])
    except (model.DataError, KeyError, TypeError) as error:
        yield Problem(entry.line, f"{entry.tag}: {where} cannot be read: {error}")
        return
    stated = {
        "Digest": (entry.digest, found.digest),
        "Image ID": (entry.image_id, found.image_id),
        "Commit": (entry.commit, manifest.commit),
        f"label {REVISION}": (entry.commit, labels.get(REVISION)),
        f"label {_RELEASE}": ("released", labels.get(_RELEASE)),
        "Base": (entry.base, labels.get(_BASE)),
        "tag": (str(entry.tag), manifest.tag),
        "Steps": (lineage.names(entry), ", ".join(f"{s.number} {s.name}" for s in manifest.steps) or "none"),
    }
    for name, (said, recorded) in stated.items():
        if said != recorded:
            yield Problem(entry.line, f"{entry.tag}: {name} is {said}, the record has {recorded or 'none'}")
    known = {switch.name for switch in manifest.switches}
    for name, value in entry.rollback_switches:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            yield Problem(entry.line, f"{entry.tag}: Rollback: {name} is no switch of the image; it has {listed}")
        if value != "0":
            yield Problem(entry.line, f"{entry.tag}: Rollback: {name}={value}: only 0 gives back upstream's path")


def lineage_of(entry: Entry, older: Sequence[Entry]) -> Iterator[Problem]:
    """Whether the entry follows and goes back to what it may; `older` are the entries below it."""
    tags = [one.tag for one in older]
    expected = lineage.predecessor(tags, entry.tag)
    if entry.follows != expected:
        said = entry.follows or "none"
        yield Problem(entry.line, f"{entry.tag}: Follows is {said}, the release before it is {expected or 'none'}")
    if entry.rollback is None:
        if expected is not None:
            text = f"Rollback is none, which only a line's first may have: there is {expected}"
            yield Problem(entry.line, f"{entry.tag}: {text}")
    elif entry.rollback == entry.tag:
        yield Problem(entry.line, f"{entry.tag}: Rollback is the release itself")
    elif entry.rollback.line != entry.tag.line:
        yield Problem(entry.line, f"{entry.tag}: Rollback {entry.rollback} is of another line")
    elif entry.rollback not in tags:
        yield Problem(entry.line, f"{entry.tag}: Rollback {entry.rollback} is no older release in this file")
    for one in older[:1]:
        if one.date > entry.date:
            text = f"stands above {one.tag} of {one.date}, and is of {entry.date}: newest first"
            yield Problem(entry.line, f"{entry.tag}: {text}")
    for one in older:
        if (one.tag.line, one.tag.base) == (entry.tag.line, entry.tag.base) and one.tag.number > entry.tag.number > 0:
            yield Problem(entry.line, f"{entry.tag}: stands above {one.tag}: newest first")


def steps(entry: Entry, found: Record, before: Record | None) -> Iterator[Problem]:
    """Whether the bullets speak of exactly the steps that are new, gone or another."""
    change = delta.between(before.moet if before else None, found.moet)
    follows = f"since {entry.follows}" if entry.follows else "in this first release"
    for sections, word, wanted in lineage.wanted(change):
        spoken = lineage.spoken_of(entry.sections, sections)
        for number, name in wanted:
            if (number, name) not in spoken:
                expected = f"expected '- Step {number}, {name}: ...' below {' or '.join(sections)}"
                yield Problem(entry.line, f"{entry.tag}: step {number} {name} was {word} {follows}: {expected}")
        for (number, name), bullet in spoken.items():
            if (number, name) not in wanted:
                yield Problem(bullet.line, f"{entry.tag}: step {number} {name} was not {word} {follows}")
