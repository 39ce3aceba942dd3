"""Scripts that run a folder's programs with the folder's loader and libraries instead of the host's."""

from collections.abc import Mapping
from pathlib import Path

FOLDER = "launch"

_LOADER = "lib64/ld-linux-x86-64.so.2"
_LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")

# g++ finds its own folders by the name that it was called by, once links are resolved: so must the scripts.
_SCRIPT = """#!/bin/sh
root=$(readlink -f "$0")
root=${{root%/{folder}/*}}
exec "$root/{loader}" --inhibit-cache --library-path "{libraries}" --argv0 "$root/{program}" "$root/{program}" \\
    {options}"$@"
"""

# Headers and libraries of the folder alone; its programs by their scripts; and no word of where the folder lies.
_DRIVER_OPTIONS = f'"--sysroot=$root" "-B$root/{FOLDER}/" "-ffile-prefix-map=$root=" '


class LauncherError(Exception):
    """A program that cannot be run; the message is one line for the user."""


def _write(folder: Path, name: str, program: str, options: str) -> None:
    if not (folder / program).is_file():
        raise LauncherError(f"{program}: not in the folder; expected the program that {name} is to run")
    text = _SCRIPT.format(
        folder=FOLDER,
        libraries=":".join(f"$root/{path}" for path in _LIBRARIES),
        loader=_LOADER,
        options=options,
        program=program,
    )
    script = folder / FOLDER / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(text)
    script.chmod(0o755)


def write(folder: Path, driver: str, programs: Mapping[str, str]) -> None:
    """Writes launch/g++ for `driver`, and a script for each of `programs`, which g++ looks for by name.

    Args:
        folder: the root of the compiler's files.
        driver: path of g++ in it.
        programs: path of each program in it, by name.

    Raises LauncherError when a program is not in the folder.
    """
    _write(folder, "g++", driver, _DRIVER_OPTIONS)
    for name, program in programs.items():
        _write(folder, name, program, "")
