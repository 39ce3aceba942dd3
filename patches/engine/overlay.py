"""The overlay: the files that a series changes, and the manifest that says what they were and are."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from patches.engine.apply import reverse_file
from patches.engine.errors import PatchError
from patches.engine.files import write
from patches.engine.judge import Outcome
from patches.engine.report import summary
from patches.engine.wheel import Wheel


def write_overlay(outcome: Outcome, wheel: Wheel, tree: Path, manifest: Path) -> None:
    """Write the folder `tree`, paths as in the wheel, and the file `manifest`; both or neither.

    What was written is read back and taken apart again: without the patches it must be the wheel's file.
    Raises PatchError if the outcome is not ok, if `tree` holds something already, or if that check fails.
    """
    if not outcome.ok:
        raise PatchError(summary(outcome, wheel))
    if tree.exists() and (not tree.is_dir() or any(tree.iterdir())):
        raise PatchError(f"{tree}: exists and is not an empty folder: remove it or name another")
    draft = tree.with_name(tree.name + ".partial")
    shutil.rmtree(draft, ignore_errors=True)
    manifest_draft = manifest.with_name(manifest.name + ".partial")
    try:
        for path, data in sorted(outcome.content.items()):
            write(draft / path, data)
        _verify(outcome, draft)
        write(manifest_draft, (json.dumps(describe(outcome, wheel), indent=2) + "\n").encode("utf-8"))
        draft.rename(tree)
        manifest_draft.rename(manifest)
    except OSError as error:
        raise PatchError(f"{error.filename or tree}: cannot write the overlay ({error.strerror})") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        manifest_draft.unlink(missing_ok=True)


def describe(outcome: Outcome, wheel: Wheel) -> dict[str, Any]:
    """The manifest as plain data: source, patches in order with their headers, files by path with sha256."""
    touched: dict[str, list[str]] = {}
    patches: list[dict[str, Any]] = []
    for verdict in outcome.verdicts:
        patch, header = verdict.patch, verdict.patch.header
        if header is None:
            raise PatchError(f"{patch.name}: has no valid header")
        for path in patch.paths:
            touched.setdefault(path, []).append(patch.name)
        patches.append(
            {
                "name": patch.name,
                "sha256": patch.sha256,
                "description": header.description,
                "reason": header.reason,
                "step": header.step,
                "switch": header.switch,
                "forwarded": header.forwarded,
                "drop_when": header.drop_when,
                "last_update": header.last_update,
                "files": sorted(patch.paths),
            }
        )
    return {
        "project": wheel.project,
        "version": wheel.version,
        "source": {"file": wheel.file, "sha256": wheel.sha256},
        "patches": patches,
        "files": [
            {
                "path": path,
                "before": _sha256(outcome.before[path]),
                "after": _sha256(outcome.content[path]),
                "patches": names,
            }
            for path, names in sorted(touched.items())
        ],
    }


def _verify(outcome: Outcome, tree: Path) -> None:
    content = {path: (tree / path).read_bytes() for path in outcome.content}
    for verdict in reversed(outcome.verdicts):
        for diff in verdict.patch.diffs:
            old = reverse_file(diff, content[diff.path])
            if old is None:
                raise PatchError(f"{verdict.patch.name}: its result is not in the written {diff.path}: the disk lies")
            content[diff.path] = old
    for path, data in content.items():
        if data != (outcome.before[path] or b""):
            raise PatchError(f"{path}: without the patches the written file is not the wheel's: the disk lies")


def _sha256(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()
