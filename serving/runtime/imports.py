"""Where the server's interpreter would import the attested packages from, asked without importing them."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from images.manifest import model
from serving.runtime.mismatch import Mismatch, inside

_TIMEOUT_S = 60

# Has moet_kernels load its libraries from elsewhere.
KERNELS_FOLDER = "MOET_KERNELS"

# Runs in the server's own interpreter and environment, so that PYTHONPATH, user site, .pth files and
# import hooks count as they will for the server.
_PROBE = """
import importlib.util, json, sys
places = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    if spec is None:
        places[name] = []
    elif spec.submodule_search_locations is not None:
        places[name] = list(spec.submodule_search_locations)
    else:
        places[name] = [spec.origin or "nowhere"]
print()
print(json.dumps({"places": places, "pycache_prefix": sys.pycache_prefix}))
"""


@dataclass(frozen=True)
class Origins:
    """Mismatches of origin, and the interpreter's sys.pycache_prefix."""

    mismatches: tuple[Mismatch, ...]
    pycache_prefix: str | None


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that the server gets: the given one, with a working folder that shadows nothing.

    vLLM starts `python -m vllm...` by itself, which would else look into the working folder first. And it warns of
    variables with its prefix that it does not know, such as the self-test's.
    """
    kept = {name: value for name, value in environment.items() if name != model.SELFTEST}
    return {**kept, "PYTHONSAFEPATH": "1"}


def check(root: str, manifest: model.Manifest, python: str, environment: Mapping[str, str]) -> Origins:
    """Asks `python` for the place of the base and of each package that has an attested file.

    Of a variable that has kernels loaded from elsewhere, too.
    """
    names = _packages(manifest)
    command = [python, "-c", _PROBE, *names]
    try:
        done = subprocess.run(
            command,
            env=server_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        return _failed(python, lines[-1])
    except subprocess.TimeoutExpired:
        return _failed(python, f"no answer in {_TIMEOUT_S} s")
    except (OSError, ValueError, IndexError) as error:
        return _failed(python, str(error))
    site = os.path.realpath(inside(root, manifest.site))
    found = [_origin(name, answer["places"][name], site) for name in names]
    if environment.get(KERNELS_FOLDER) and any(file.kind == "kernel" for file in manifest.files):
        found.append(Mismatch("import", KERNELS_FOLDER, "it not to be set", environment[KERNELS_FOLDER]))
    return Origins(tuple(item for item in found if item is not None), answer["pycache_prefix"])


def _packages(manifest: model.Manifest) -> list[str]:
    names = {manifest.base.name.replace("-", "_")}
    for file in manifest.files:
        below = file.path.removeprefix(manifest.site + "/")
        if below != file.path and file.kind != "runtime":
            names.add(below.split("/")[0].split(".")[0])
    return sorted(name for name in names if name.isidentifier())


def _origin(name: str, places: Sequence[str], site: str) -> Mismatch | None:
    package = os.path.join(site, name)
    real = [os.path.realpath(place) for place in places]
    if real == [package] or (
        len(real) == 1 and os.path.dirname(real[0]) == site and not os.path.isdir(real[0])
    ):
        return None
    return Mismatch(
        "import", f"import {name}", f"it to come from {package}", ", ".join(places) or "no such module"
    )


def _failed(python: str, found: str) -> Origins:
    return Origins(
        (Mismatch("import", python, "an interpreter that starts in this environment", found),), None
    )
