"""What an image is made of, for programs and for people."""

from collections import Counter
from typing import Any

from images.inspect.difference import Difference
from images.inspect.text import brief, megabytes, one_line, plain
from images.inspect.tree import Tree
from images.inspect.view import View
from images.inspect.wording import show as show_difference
from images.manifest import model
from releases.tag import Tag
from tools.cli.output import Output

SCHEMA = "moet.image-explain.v1"
_KINDS: tuple[model.PinKind, ...] = ("wheel", "deb", "source")


def document(view: View, release: Tag | None, against: tuple[Tree, Difference] | None) -> dict[str, Any]:
    """The explanation as one JSON document; `release` is the known release whose image it is."""
    manifest = view.manifest
    made: dict[str, Any] = {
        "schema": SCHEMA,
        **identity(view),
        "release": str(release) if release else None,
        "checked": list(view.checked),
        "trusted": list(view.trusted),
        "notes": list(view.notes),
        "base": model.encode(manifest.base),
        "created": _created(view),
        "steps": [_step(manifest, step) for step in manifest.steps],
        "switches": [model.encode(switch) for switch in manifest.switches],
        "kernels": [model.encode(file) for file in manifest.files if file.kind == "kernel"],
        "files": [model.encode(file) for file in manifest.files],
        "overlays": [model.encode(overlay) for overlay in manifest.overlays],
        "pins": [model.encode(pin) for pin in manifest.pins],
        "pins_sha256": view.labels.get("org.moet.pins.sha256"),
        "layers": [vars(layer) for layer in view.layers],
    }
    if against:
        tree, difference = against
        made["against_tree"] = {
            "root": str(tree.root),
            "commit": tree.commit,
            "changed_files": tree.changes,
            "target": tree.target,
            "same": not difference,
            **difference.document(),
        }
    return made


def identity(view: View) -> dict[str, Any]:
    """Which image it is and where it was found, as JSON has it."""
    return {
        "source": {"kind": view.kind, "where": view.source},
        "tag": view.manifest.tag,
        "line": view.manifest.line,
        "released": view.released,
        "commit": view.manifest.commit,
        "digest": view.digest,
        "image_id": view.image_id,
    }


def show(out: Output, view: View, release: Tag | None, pins: bool) -> None:
    """Prints the explanation; `pins`: all of them, and not their numbers alone."""
    manifest = view.manifest
    for name, value in _head(view, release):
        out.line(f"{name:<10} {one_line(value)}")
    for note in view.notes:
        out.line(f"{'note':<10} {plain(note)}")
    _steps(out, manifest)
    libraries = [file for file in manifest.files if file.kind == "kernel" and file.path.endswith(".so")]
    if libraries:
        out.table(["kernels", "sha256", ">bytes"], [[plain(f.path), f.sha256, f.size] for f in libraries])
    if pins:
        out.table(
            ["pin", "version", "kind", "sha256 or commit"],
            [[plain(p.name), plain(p.version), p.kind, plain(p.sha256 or p.commit or "")] for p in manifest.pins],
        )
    rows = [
        [number, plain(layer.name), megabytes(layer.size), layer.digest or layer.diff_id, brief(layer.comment, 54)]
        for number, layer in enumerate(view.layers, 1)
    ]
    known = all(layer.digest for layer in view.layers)
    out.table([">layer", "name", ">size", "digest" if known else "diff_id", "holds"], rows)


def show_against(out: Output, view: View, tree: Tree, difference: Difference) -> None:
    """Prints how the image differs from what the tree would build."""
    state = f"commit {tree.commit}" if tree.commit else "no commit"
    changes = f", {tree.changes} files differ from it" if tree.changes else ""
    out.line(f"{'image':<10} {plain(view.manifest.tag)}, commit {view.manifest.commit or 'none'}, {plain(view.source)}")
    out.line(f"{'tree':<10} {tree.target} of {tree.root}, {state}{changes}")
    if not difference:
        out.line("the tree would build the same: pins, steps, patches, switches and attested files")
        return
    show_difference(out, difference, "image", "tree", "only in the tree", "only in the image")


def _head(view: View, release: Tag | None) -> list[tuple[str, str]]:
    manifest, base = view.manifest, view.manifest.base
    counts = Counter(file.kind for file in manifest.files)
    kinds = Counter(pin.kind for pin in manifest.pins)
    pins = ", ".join(f"{kinds[kind]} {kind}{'s' * (kinds[kind] != 1)}" for kind in _KINDS)
    size = sum(layer.size or 0 for layer in view.layers)
    known = all(layer.size is not None for layer in view.layers)
    rows = [
        ("image", manifest.tag),
        ("found", view.source),
        ("release", str(release) if release else _no_release(view)),
        ("commit", manifest.commit or "none: an unreleased build"),
        ("base", f"{base.name} {base.version}, commit {base.commit}"),
        ("created", _created(view) or "?"),
        ("digest", view.digest or "not known here: the engine or tar keeps no manifest"),
        ("image id", view.image_id),
        ("layers", f"{len(view.layers)}" + (f", {megabytes(size)} as stored" if known else "")),
        ("pins", f"{pins}; sha256 {view.labels.get('org.moet.pins.sha256', '?')}"),
        ("attested", f"{len(manifest.files)} files: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))),
        ("checked", ", ".join(view.checked)),
    ]
    return [*rows, ("trusted", f"the engine's word: {', '.join(view.trusted)}")] if view.trusted else rows


def _no_release(view: View) -> str:
    if view.released:
        return "says that it is one; CHANGELOG.md known here does not have this image"
    return "none"


def _steps(out: Output, manifest: model.Manifest) -> None:
    out.line()
    if not manifest.steps:
        out.line("no steps: upstream as it is pinned")
    patches = {patch.name: patch for patch in manifest.patches}
    for step in manifest.steps:
        out.line(f"step {step.number} {plain(step.name)}: numerics {step.numerics}, {_switch(manifest, step)}")
        out.line(f"  why       {one_line(step.reason)}")
        out.line(f"  evidence  {one_line(step.evidence)}")
        out.line(f"  drop when {one_line(step.drop_when)}")
        for name in step.patches:
            patch = patches.get(name)
            out.line(f"  patch     {one_line(name)}, sha256 {one_line(patch.sha256 if patch else 'unknown')}")
            if patch:
                out.line(f"            {one_line(patch.reason)}; changes {one_line(', '.join(patch.files))}")
        for family in step.kernels:
            digest = model.library_sha256(manifest, family) or "unknown"
            out.line(f"  kernels   {one_line(family)}, sha256 {one_line(digest)}")


def _switch(manifest: model.Manifest, step: model.Step) -> str:
    if step.switch is None:
        return "no switch"
    on = next((switch.on for switch in manifest.switches if switch.name == step.switch), "1")
    if step.default == "0":
        return plain(f"switch {step.switch}=0: OFF by default, {on} turns it on")
    return plain(f"switch {step.switch}={step.default}: on by default, 0 turns it off")


def _step(manifest: model.Manifest, step: model.Step) -> dict[str, Any]:
    patches = [model.encode(patch) for patch in manifest.patches if patch.name in step.patches]
    return {**model.encode(step), "patches": patches}


def _created(view: View) -> str | None:
    created = view.config.get("created") or view.labels.get("org.opencontainers.image.created")
    return str(created) if created else None
