"""The series for another version, written as far as it can be without a person."""

import shutil
from pathlib import Path

from patches.engine.errors import PatchError
from patches.engine.judge import judge
from patches.engine.series import SERIES, Series, parse_patch, without_names
from patches.engine.wheel import Wheel
from patches.tools.diagnosis import Diagnosis, PatchFinding, Verdict
from patches.tools.place import Place
from tools.files import atomic


def write(place: Place, found: Diagnosis, wheel: Wheel, target: Path) -> list[str]:
    """Write the folder `target`, which must not exist, in one stroke: series, patches, BUILD file and tests.

    Patches that cannot be renewed are left out, and stand in the series as comments that say why; the others
    are held against `wheel` before anything is written. Returns a line a patch. Raises PatchError.
    """
    if target.exists():
        raise PatchError(f"{target}: exists already: remove it or name another folder")
    kept = {one.patch.name: one.rebased for one in found.patches if one.rebased is not None}
    left = {one.patch.name: _why(one, found.version) for one in found.patches if one.rebased is None}
    outcome = judge(Series(tuple(parse_patch(name, data) for name, data in kept.items()), ()), wheel)
    if not outcome.ok:
        bad = [verdict.patch.name for verdict in outcome.verdicts if verdict.patch.faults or verdict.state.rank]
        raise PatchError(f"{target}: not written: renewed, {', '.join(bad) or outcome.problems[0]} does not apply")
    files = {SERIES: without_names((place.folder / SERIES).read_bytes(), left), **kept}
    for path in sorted([place.folder / "BUILD.bazel", *(place.folder / "tests").glob("*.py")]):
        files[path.relative_to(place.folder).as_posix()] = path.read_bytes()
    for draft in target.parent.glob(f".{target.name}.*.partial"):
        shutil.rmtree(draft, ignore_errors=True)
    try:
        atomic.write_folder(target, files)
    except FileExistsError:
        raise PatchError(f"{target}: exists already: remove it or name another folder") from None
    told = [f"wrote {target}: {len(kept)} of {len(found.patches)} patches"]
    for one in found.patches:
        if one.patch.name in left:
            told.append(f"  left out: {one.patch.name}: {left[one.patch.name]}{_next(place, one, target)}")
        elif one.own is not Verdict.CLEAN:
            told.append(f"  renewed: {one.patch.name} ({one.own.value})")
    if target.name != f"{found.project}-{found.version}":
        told.append(f"  rename it to {found.project}-{found.version} before Bazel builds it")
    return told


def _why(one: PatchFinding, version: str) -> str:
    return f"{one.own.value} on {version}"


def _next(place: Place, one: PatchFinding, target: Path) -> str:
    if one.own is Verdict.UPSTREAM:
        return "; retire its step"
    name = one.patch.name.removesuffix(".patch")
    return f"; moet patch new {name} --series {target.name} --like {place.shown}/{one.patch.name}"
