"""The entry of a new release, drafted from its record, the release before it and [Unreleased].

What only a person can say is marked TODO: and `moet release check` refuses it.
"""

import datetime

from images.manifest import model
from releases.changelog.entry import SECTIONS, Bullet, Entry
from releases.cutting import delta, lineage
from releases.cutting.delta import Delta
from releases.record import Record
from releases.tag import Tag

TODO = "TODO:"
_MOST_PINS = 20
_KINDS: dict[model.PinKind, str] = {"wheel": "Wheels", "deb": "Debian packages", "source": "Sources"}

Sections = dict[str, tuple[Bullet, ...]]


def entry(
    tag: Tag, date: datetime.date, record: Record, follows: tuple[Tag, Record] | None, unreleased: Sections
) -> Entry:
    """Drafts the entry of `tag`; `follows` is the release before it, `unreleased` what [Unreleased] has of the line."""
    manifest = record.moet
    assert manifest.commit is not None
    change = delta.between(follows[1].moet if follows else None, manifest)
    return Entry(
        tag=tag,
        date=date,
        summary=_summary(tag, manifest, follows[1].moet if follows else None, change),
        digest=record.digest,
        image_id=record.image_id,
        commit=manifest.commit,
        base=_base(manifest),
        steps=tuple((step.number, step.name) for step in manifest.steps),
        follows=follows[0] if follows else None,
        rollback=follows[0] if follows else None,
        rollback_switches=_switches(change),
        sections=_sections(record, follows, change, unreleased),
        evidence=(Bullet(f"{TODO} what was seen of this image, with a receipt (moet release receipt --tag {tag})"),),
    )


def _summary(tag: Tag, manifest: model.Manifest, before: model.Manifest | None, change: Delta) -> str:
    upstream = f"{manifest.base.name} {manifest.base.version}"
    if tag.number == 0:
        return f"{upstream} as released, without steps: what every step of this base is compared with."
    parts = [
        f"{word} {'step' if len(steps) == 1 else 'steps'} {', '.join(str(number) for number, _ in steps)}"
        for _, word, steps in lineage.wanted(change)
        if steps
    ]
    if before and before.base != manifest.base:
        upstream += f" (before: {before.base.version})"
    return f"{upstream}; {'; '.join(parts) or 'the same steps'}."


def _base(manifest: model.Manifest) -> str:
    return f"{manifest.base.name} {manifest.base.version} {manifest.base.commit}"


def _switches(change: Delta) -> tuple[tuple[str, str], ...]:
    steps = (*change.added, *(one.step for one in change.changed))
    return tuple((step.switch, "0") for step in steps if step.switch and step.default != "0")


def _sections(
    record: Record, follows: tuple[Tag, Record] | None, change: Delta, unreleased: Sections
) -> Sections:
    manifest = record.moet
    before = follows[1].moet if follows else None
    found = {name: list(unreleased.get(name, ())) for name in SECTIONS}
    changed = tuple(one.step for one in change.changed)
    for where, steps in ((lineage.ADDED, change.added), (lineage.RETIRED, change.retired), (lineage.CHANGED, changed)):
        spoken = lineage.spoken_of(unreleased, where)
        for step in steps:
            if (step.number, step.name) not in spoken:
                words = _words(step, manifest, before, change)
                found[where[0]].append(Bullet(f"Step {step.number}, {step.name}: {words}"))
    if before and before.base != manifest.base:
        found["Changed"].append(Bullet(f"{manifest.base.name} {before.base.version} -> {manifest.base.version}."))
    found["Changed"] += [Bullet(text) for text in _pins(change)]
    if follows is None and not manifest.steps:
        found["Added"].append(Bullet(f"{manifest.base.name} {manifest.base.version} as released."))
    if not any(found.values()):
        layers = ", ".join(_layers(record, follows[1])) if follows else ""
        found["Changed"].append(Bullet(f"{TODO} what is different (layers that differ: {layers or 'none'})"))
    return {name: tuple(bullets) for name, bullets in found.items() if bullets}


def _words(step: model.Step, manifest: model.Manifest, before: model.Manifest | None, change: Delta) -> str:
    if step in change.retired:
        return f"{TODO} why it could go (drop when: {step.drop_when})"
    if step in change.added:
        return f"{TODO} what it does. Without it: {step.reason} {_off(step, manifest)}".rstrip()
    what = next(one.what for one in change.changed if one.step == step)
    if before and before.base != manifest.base and all(text.startswith("patch ") for text in what):
        return f"made anew for {manifest.base.name} {manifest.base.version}."
    return f"{TODO} what is different ({', '.join(what)})"


def _off(step: model.Step, manifest: model.Manifest) -> str:
    if step.switch is None:
        return ""
    if step.default != "0":
        return f"Off: `{step.switch}=0`."
    on = next((switch.on for switch in manifest.switches if switch.name == step.switch), "1")
    return f"Off unless `{step.switch}={on}`."


def _pins(change: Delta) -> list[str]:
    lines = []
    for kind, title in _KINDS.items():
        texts = [str(pin) for pin in change.pins if pin.kind == kind]
        if texts:
            more = f" and {len(texts) - _MOST_PINS} more" if len(texts) > _MOST_PINS else ""
            lines.append(f"{title}: {', '.join(texts[:_MOST_PINS])}{more}.")
    return lines


def _layers(one: Record, other: Record) -> list[str]:
    layers = []
    for record in (one, other):
        config = record.oci_config
        layers.append({
            step["created_by"]: diff_id
            for step, diff_id in zip(config["history"], config["rootfs"]["diff_ids"], strict=True)
        })
    return [name.removeprefix("moet ") for name in layers[0] if layers[0][name] != layers[1].get(name)]
