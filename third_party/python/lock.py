"""Remakes a Python lock from its closure file, and shows what changed.

usage: bazel run //third_party/python:lock -- NAME [--check] [--json]

Reads third_party/python/NAME.toml, lets uv resolve it against the host's configured index, picks
one wheel a package for the closure's Python and glibc, and writes third_party/python/NAME.lock.bzl.
With --check nothing is written and the exit status is 1 when the lock would change.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from third_party.locking import difference
from third_party.python import lockfile, wheels


class LockError(Exception):
    """A closure that cannot be locked; the message is one line for the user."""


def uv_binary() -> Path:
    """Returns the uv program of the pinned wheel (unpacked, hence still under .data/scripts)."""
    import uv

    site = Path(uv.__file__).parent.parent
    return next(site.glob("uv-*.data/scripts/uv"))


def project(closure: Mapping[str, Any]) -> str:
    """Returns the pyproject.toml that makes uv resolve `closure` for one platform, wheels only."""
    return "\n".join([
        "[project]",
        'name = "closure"',
        'version = "0"',
        f'requires-python = "=={closure["python"]}.*"',
        f"dependencies = {json.dumps(closure['requirements'])}",
        "[tool.uv]",
        "no-build = true",
        "package = false",
        f"constraint-dependencies = {json.dumps(closure['constraints'])}",
        """environments = ["sys_platform == 'linux' and platform_machine == 'x86_64'"""
        """ and implementation_name == 'cpython'"]""",
    ])


def resolve(closure: Mapping[str, Any]) -> dict[str, Any]:
    """Returns uv's lock of `closure`, parsed.

    Raises LockError with uv's own words when there is no solution.
    """
    with tempfile.TemporaryDirectory() as folder:
        uv = Path(folder, "uv")
        uv.write_bytes(uv_binary().read_bytes())
        uv.chmod(0o755)
        Path(folder, "pyproject.toml").write_text(project(closure))
        # A pip constraint of the host must not leak into the lock.
        env = {k: v for k, v in os.environ.items() if k not in ("PIP_CONSTRAINT", "UV_CONSTRAINT")}
        done = subprocess.run([uv, "lock", "--no-progress"], cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode:
            raise LockError(f"uv cannot resolve the closure:\n{done.stderr.strip()}")
        return tomllib.loads(Path(folder, "uv.lock").read_text())


def entries(locked: Mapping[str, Any], closure: Mapping[str, Any]) -> dict[str, lockfile.Entry]:
    """Turns uv's lock into the entries of ours, by normalised name.

    Raises LockError when a package has no wheel for the closure's platform.
    """
    environment = wheels.environment(str(closure["python"]))
    ranked = wheels.ranking(str(closure["python"]), str(closure["glibc"]))
    result = {}
    for package in locked["package"]:
        if package["name"] == "closure":
            continue
        best = wheels.best(package.get("wheels", []), ranked)
        if best is None:
            raise LockError(f"{package['name']} {package['version']} has no wheel for this platform; pin another")
        requires = {
            canonicalize_name(d["name"])
            for d in package.get("dependencies", [])
            + [d for extra in package.get("optional-dependencies", {}).values() for d in extra]
            if "marker" not in d or Marker(d["marker"]).evaluate(environment)
        }
        result[canonicalize_name(package["name"])] = lockfile.Entry(
            version=package["version"],
            file=wheels.file_name(best["url"]),
            sha256=best["hash"].removeprefix("sha256:"),
            size=best["size"],
            requires=tuple(sorted(requires - {package["name"]})),
        )
    return dict(sorted(result.items()))


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="remake a Python lock and show the difference")
    parser.add_argument("name", help="closure file without .toml, e.g. dsv41")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the lock would change")
    parser.add_argument("--json", action="store_true", help="print the difference as JSON")
    args = parser.parse_args(argv)
    folder = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "third_party/python")
    source = folder / f"{args.name}.toml"
    if not source.exists():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.toml")))
        print(f"{args.name}: no such closure; expected one of {known}", file=sys.stderr)
        return 2
    closure = tomllib.loads(source.read_text())
    target = folder / f"{args.name}.lock.bzl"
    before = lockfile.read(target) if target.exists() else {}
    try:
        after = entries(resolve(closure), closure)
    except LockError as error:
        print(f"{args.name}: {error}", file=sys.stderr)
        return 1
    changes = difference.between(before, after)
    if args.json:
        print(difference.as_json(changes))
    else:
        print(f"{args.name}: {difference.as_table('wheels', changes, after)}")
    if args.check:
        return 1 if changes else 0
    if changes or not target.exists():
        lockfile.write(target, args.name, after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
