"""What a manifest must keep beyond its shape; every problem is one line that says what to do."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from images.manifest import model, names

_T = TypeVar("_T")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ON = re.compile(r"[1-9][0-9]*")
_WHOLE_COMMIT = re.compile(r"[0-9a-f]{40}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def problems(manifest: model.Manifest) -> list[str]:
    """Everything that is wrong with the manifest, one line each, in a fixed order."""
    base = manifest.base.name + manifest.base.version
    return [
        *names.tag_problems(manifest.tag, manifest.line, base, manifest.commit is not None),
        *_release(manifest),
        *_pins(manifest),
        *_steps(manifest.steps),
        *_switches(manifest.switches),
        *_claims(manifest),
        *_kernels(manifest),
        *_overlays(manifest),
        *_files(manifest.files),
    ]


def _release(manifest: model.Manifest) -> Iterator[str]:
    if manifest.commit is not None and not _WHOLE_COMMIT.fullmatch(manifest.commit):
        yield f"commit {manifest.commit!r}: expected 40 hexadecimal digits, as git rev-parse HEAD prints them"


def _pins(manifest: model.Manifest) -> Iterator[str]:
    base = manifest.base
    if not _COMMIT.fullmatch(base.commit):
        yield f"base {base.name}: {base.commit!r} is no commit: expected 7 to 64 hexadecimal digits"
    for first, second in _twice(manifest.pins, lambda pin: (pin.kind, pin.name)):
        yield f"{first.kind} {first.name} is pinned twice, at {first.version} and {second.version}: keep one"
    for pin in manifest.pins:
        yield from _pin(pin)
    yield from _pinned(manifest, base.name, base.version, "base")
    hashes = {pin.sha256 for pin in manifest.pins}
    for overlay in manifest.overlays:
        yield from _pinned(manifest, overlay.project, overlay.version, "overlay")
        if overlay.source.sha256 not in hashes:
            yield f"overlay {overlay.project}: made of {overlay.source.file}, which is not pinned: rebuild it"


def _pin(pin: model.Pin) -> Iterator[str]:
    if pin.sha256 is not None and not _SHA256.fullmatch(pin.sha256):
        yield f"pin {pin.name}: {pin.sha256!r} is no sha256: expected 64 hexadecimal digits"
    if pin.commit is not None and not _COMMIT.fullmatch(pin.commit):
        yield f"pin {pin.name}: {pin.commit!r} is no commit: expected 7 to 64 hexadecimal digits"
    if pin.kind == "source" and pin.commit is None and pin.file is None:
        yield f"pin {pin.name}: a source needs its commit, or a file with its sha256"
    if (pin.file is None) != (pin.sha256 is None) or (pin.kind != "source" and pin.file is None):
        yield f"pin {pin.name}: a {pin.kind} needs file and sha256 together"


def _pinned(manifest: model.Manifest, name: str, version: str, what: str) -> Iterator[str]:
    pins = [pin for pin in manifest.pins if pin.name == name and pin.kind != "deb"]
    if not pins:
        yield f"{what} {name} {version}: no pin has this name: add its lock to the image"
    for pin in pins:
        if pin.version != version:
            yield f"{what} {name} {version}: the {pin.kind} is pinned at {pin.version}: make both the same"


def _steps(steps: tuple[model.Step, ...]) -> Iterator[str]:
    free = max((step.number for step in steps), default=0) + 1
    for first, second in _twice(steps, lambda step: step.number):
        yield (
            f"step number {first.number} is used twice, by {first.name} and {second.name}: "
            f"numbers are never reused, {free} is free"
        )
    for first, second in _twice(steps, lambda step: step.name):
        yield f"step name {first.name} is used twice, by {first.number} and {second.number}: rename one"
    switched = [step for step in steps if step.switch is not None]
    for first, second in _twice(switched, lambda step: step.switch):
        yield f"switch {first.switch} is used twice, by {first.name} and {second.name}: give each its own"
    for step in steps:
        yield from _step(step)


def _step(step: model.Step) -> Iterator[str]:
    if step.number < 1:
        yield f"step {step.name}: number {step.number} is not positive: number steps from 1"
    problem = names.step_name_problem(step.name)
    if problem:
        yield problem
    problem = names.switch_problem(step.switch) if step.switch is not None else None
    if problem:
        yield f"step {step.name}: {problem}"
    if step.switch == model.SELFTEST:
        yield f"step {step.name}: {step.switch} starts the self-test: give the switch another name"
    if step.switch is None and step.default != "1":
        yield f"step {step.name}: without a switch its default is 1, not {step.default!r}"
    for field in ("reason", "evidence", "drop_when"):
        if not getattr(step, field).strip():
            yield f"step {step.name}: {field} is empty: fill it in"


def _switches(switches: tuple[model.Switch, ...]) -> Iterator[str]:
    for switch in switches:
        if not _ON.fullmatch(switch.on):
            yield f"switch {switch.name}: {switch.on!r} cannot turn it on: expected a number above 0"
        if switch.default not in ("0", switch.on):
            yield f"switch {switch.name}: default {switch.default!r}: expected 0 or {switch.on}"


def _claims(manifest: model.Manifest) -> Iterator[str]:
    """Steps and patches must name each other, and agree on the switch."""
    for patch, _ in _twice(manifest.patches, lambda patch: patch.name):
        yield f"patch {patch.name} stands twice in the series: keep one"
    series = {patch.name: patch for patch in manifest.patches}
    claims = [(step, name) for step in manifest.steps for name in step.patches]
    for first, second in _twice(claims, lambda claim: claim[1]):
        yield f"patch {first[1]} is claimed twice, by steps {first[0].name} and {second[0].name}: keep one"
    for step, name in claims:
        if name not in series:
            yield f"step {step.name} names the patch {name}, which the series lacks: add it there or drop it"
            continue
        patch = series[name]
        if patch.step != step.name:
            yield (
                f"patch {name}: its header says Step: {patch.step}, "
                f"but step {step.name} claims it: make both the same"
            )
        if patch.switch != step.switch:
            yield (
                f"patch {name}: its header says Switch: {patch.switch or 'none'}, "
                f"but step {step.name} has {step.switch or 'none'}: make both the same"
            )
    claimed = {name for _, name in claims}
    for patch in manifest.patches:
        if patch.name not in claimed:
            yield f"patch {patch.name} of the series is claimed by no step: add it to step {patch.step}"


def _kernels(manifest: model.Manifest) -> Iterator[str]:
    """Steps name families of kernels that the image has, and it has none that no step names."""
    libraries = (file.path for file in manifest.files if file.kind == "kernel" and file.path.endswith(".so"))
    families = {posixpath.basename(path).removesuffix(".so"): path for path in libraries}
    named = {family for step in manifest.steps for family in step.kernels}
    for step in manifest.steps:
        for family in step.kernels:
            expected = model.library_path(manifest.site, family)
            if families.get(family) != expected:
                yield (
                    f"step {step.name} names the kernels {family}, but {expected} is not among the files: "
                    "give the layer that has it"
                )
    for family in sorted(families.keys() - named):
        yield f"kernels {family} are named by no step: add them to one, or leave {families[family]} out"


def _overlays(manifest: model.Manifest) -> Iterator[str]:
    for first, _ in _twice(manifest.overlays, lambda overlay: overlay.project):
        yield f"project {first.project} has two overlays: put their patches into one series"
    paths = {file.path for file in manifest.files}
    for overlay in manifest.overlays:
        record = model.record_path(manifest.site, overlay.project, overlay.version)
        if record not in paths:
            yield (
                f"overlay {overlay.project}: {record} is not among the files: "
                "give the layer that brings it up to date"
            )


def _files(files: tuple[model.File, ...]) -> Iterator[str]:
    for first, second in _twice(files, lambda file: file.path):
        yield f"{first.path} is there twice, as {first.kind} and as {second.kind}: keep one"
    for file in files:
        if not file.path.startswith("/") or posixpath.normpath(file.path).lstrip("/") != file.path[1:]:
            yield f"file {file.path!r}: expected an absolute path without '.', '..' or double slashes"
        elif names.control_character(file.path):
            yield f"file {file.path!r}: has a control character"


def _twice(items: Iterable[_T], key: Callable[[_T], object]) -> Iterator[tuple[_T, _T]]:
    seen: dict[object, _T] = {}
    for item in items:
        if key(item) in seen:
            yield seen[key(item)], item
        else:
            seen[key(item)] = item
