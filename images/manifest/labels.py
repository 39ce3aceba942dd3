"""The OCI labels of an image, from its line's data and its manifest."""

import datetime
import hashlib
import re

from images.manifest import inputs, model, names

_IMAGE = "org.opencontainers.image."
_OURS = "org.moet."
_CREATED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


def labels(line: inputs.Line, manifest: model.Manifest, manifest_sha256: str) -> dict[str, str]:
    """Returns the labels, sorted by key: those of the line and those computed from the manifest.

    `manifest_sha256` is the hex hash of the manifest file. Raises ManifestError with all problems: forbidden
    characters, a label of the line that is computed, a time that is not RFC 3339 in UTC.
    """
    computed = _computed(line, manifest, manifest_sha256)
    problems = names.label_problems(line.labels)
    for key in sorted(line.labels):
        if key.startswith(_OURS) or key in computed:
            problems.append(f"label {key}: is computed: take it out of the line's labels")
    if line.created is not None and not _is_time(line.created):
        problems.append(f"created {line.created!r}: expected a time in UTC such as 2026-01-31T12:00:00Z")
    problems += names.label_problems(computed)
    if problems:
        raise inputs.ManifestError(*problems)
    defaults = {_IMAGE + "title": manifest.line}
    return dict(sorted({**defaults, **line.labels, **computed}.items()))


def _computed(line: inputs.Line, manifest: model.Manifest, manifest_sha256: str) -> dict[str, str]:
    pins = model.dumps([model.encode(pin) for pin in manifest.pins])
    known = {
        _IMAGE + "version": manifest.tag.partition(":")[2],
        _IMAGE + "created": line.created,
        _OURS + "base": f"{manifest.base.name} {manifest.base.version} {manifest.base.commit}",
        _OURS + "line": manifest.line,
        _OURS + "manifest": model.PATH,
        _OURS + "manifest.sha256": manifest_sha256,
        _IMAGE + "revision": manifest.commit,
        _OURS + "release": "unreleased" if manifest.commit is None else "released",
        _OURS + "pins.sha256": hashlib.sha256(pins).hexdigest(),
        _OURS + "steps": ",".join(f"{step.number}:{step.name}" for step in manifest.steps),
        _OURS + "tag": manifest.tag,
    }
    return {key: value for key, value in known.items() if value is not None}


def _is_time(value: str) -> bool:
    try:
        return bool(_CREATED.fullmatch(value)) and bool(datetime.datetime.fromisoformat(value))
    except ValueError:
        return False
