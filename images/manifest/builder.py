"""Merges the inputs into the image manifest."""

from collections.abc import Sequence

from images.manifest import checks, inputs, model


def build(
    line: inputs.Line,
    site: str,
    overlays: Sequence[inputs.Overlay],
    pins: Sequence[model.Pin],
    files: Sequence[model.File],
) -> model.Manifest:
    """Returns the manifest, in an order that does not depend on the inputs', but for the patches of a series.

    `site` is the absolute path of the site folder, `files` what attestation checks. The same pin may come
    from several locks. Raises ManifestError with every problem.
    """
    overlays = sorted(overlays, key=lambda overlay: overlay.project)
    manifest = model.Manifest(
        schema=model.SCHEMA,
        line=line.line,
        tag=line.tag,
        base=line.base,
        site=site,
        overlays=tuple(model.Overlay(each.project, each.version, each.source) for each in overlays),
        pins=tuple(sorted(set(pins), key=lambda pin: (pin.kind, pin.name, pin.version, pin.file or ""))),
        steps=tuple(sorted((_plain(step) for step in line.steps), key=lambda step: (step.number, step.name))),
        patches=tuple(patch for overlay in overlays for patch in overlay.patches),
        switches=tuple(sorted(_switches(line), key=lambda switch: (switch.name, switch.step))),
        files=tuple(sorted(files, key=lambda file: (file.path, file.kind))),
        commit=line.commit,
    )
    problems = [*checks.problems(manifest), *_unbuilt(manifest, overlays)]
    if problems:
        raise inputs.ManifestError(*problems)
    return manifest


def _plain(step: inputs.LineStep) -> model.Step:
    return model.Step(**{name: value for name, value in vars(step).items() if name not in ("on", "meaning")})


def _switches(line: inputs.Line) -> list[model.Switch]:
    return [
        model.Switch(
            step.switch,
            step.default,
            step.on,
            step.name,
            step.meaning or f"{step.on} turns step {step.number} on; 0 gives back upstream's path",
        )
        for step in line.steps
        if step.switch is not None
    ]


def _unbuilt(manifest: model.Manifest, overlays: Sequence[inputs.Overlay]) -> list[str]:
    """Files of an overlay that the image's layers do not have as the overlay has them."""
    built = {file.path: file.sha256 for file in manifest.files}
    return [
        f"overlay {overlay.project}: {file.path} should have sha256 {file.after}, the layers have "
        f"{built.get(f'{manifest.site}/{file.path}', 'no such file')}: build both from the same series"
        for overlay in overlays
        for file in overlay.files
        if built.get(f"{manifest.site}/{file.path}") != file.after
    ]
