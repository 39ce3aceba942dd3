"""An attestation as text for people and as JSON for machines."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from images.manifest import model
from serving.runtime.attest import Attestation
from serving.runtime.switches import StepState

SCHEMA = "moet.attestation.v1"
_ADVICE = (
    "refused: do not install into the container, mount over its files or shadow them; recreate it from "
    "the image's digest. To run it altered, unattested: --entrypoint vllm IMAGE serve MODEL"
)


def text(attestation: Attestation) -> str:
    """The report: what was checked, the steps, warnings; on a mismatch each one and what to do."""
    manifest = attestation.manifest
    if attestation.mismatches:
        tag = f" in {manifest.tag}" if manifest else ""
        lines = [f"MISMATCH {item}" for item in attestation.mismatches]
        lines.append(f"{len(lines)} mismatch{'es' if len(lines) > 1 else ''}{tag}: {_ADVICE}")
    elif manifest:
        base = manifest.base
        lines = [
            f"{manifest.tag} ({base.name} {base.version}, {base.commit}; {_origin(manifest)}): attested, "
            f"{_counted(manifest)}, "
            f"manifest {attestation.manifest_sha256[:12]}"
        ]
        lines += table(attestation.steps)
    lines += attestation.errors
    lines += [f"warning: {warning}" for warning in attestation.warnings]
    return "".join(f"moet: {line}\n" for line in lines)


def table(steps: Sequence[StepState]) -> list[str]:
    """One aligned line a step, under a head."""
    rows = [("step", "name", "numerics", "switch", "state")]
    rows += [
        (
            str(state.step.number),
            state.step.name,
            state.step.numerics,
            state.step.switch or "-",
            _state(state),
        )
        for state in steps
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def as_json(attestation: Attestation) -> str:
    """The report as one JSON object (SCHEMA), with sorted keys."""
    manifest = attestation.manifest
    return dump(
        {
            "schema": SCHEMA,
            "ok": attestation.ok,
            "manifest_sha256": attestation.manifest_sha256,
            "line": manifest.line if manifest else None,
            "tag": manifest.tag if manifest else None,
            "commit": manifest.commit if manifest else None,
            "base": model.encode(manifest.base) if manifest else None,
            "files": dict(Counter(file.kind for file in manifest.files)) if manifest else {},
            "steps": steps_json(attestation.steps),
            "mismatches": [vars(item) for item in attestation.mismatches],
            "errors": list(attestation.errors),
            "warnings": list(attestation.warnings),
        }
    )


def cannot_attest_json(error: str) -> str:
    """What `as_json` would say where there is nothing to attest against."""
    return dump({"schema": SCHEMA, "ok": False, "errors": [error]})


def steps_json(steps: Sequence[StepState]) -> list[dict[str, Any]]:
    """The steps as plain data; `value` is what the switch is set to, null where it is not set."""
    return [
        {
            "number": state.step.number,
            "name": state.step.name,
            "numerics": state.step.numerics,
            "switch": state.step.switch,
            "default": state.step.default,
            "value": state.value,
            "live": state.live,
        }
        for state in steps
    ]


def dump(value: Any) -> str:
    """Plain data as indented JSON with sorted keys."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _origin(manifest: model.Manifest) -> str:
    return f"commit {manifest.commit[:12]}" if manifest.commit else "unreleased"


def _counted(manifest: model.Manifest) -> str:
    counts = sorted(Counter(file.kind for file in manifest.files).items())
    return f"{len(manifest.files)} files ({', '.join(f'{count} {kind}' for kind, count in counts)})"


def _state(state: StepState) -> str:
    word = {True: "on", False: "OFF", None: "INVALID"}[state.live]
    if state.value is not None:
        return f"{word} (set to {state.value})"
    return word if state.live else f"{word} (by default)"
