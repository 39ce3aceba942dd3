"""Which wheel of a release fits a closure's Python and glibc."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

_ALIASES = {(2, 5): "manylinux1", (2, 12): "manylinux2010", (2, 17): "manylinux2014"}


def platforms(glibc: str) -> list[str]:
    """Returns the x86_64 platform tags that a glibc such as "2.36" can load, newest first (PEP 600)."""
    tags = []
    for minor in range(int(glibc.split(".")[1]), 4, -1):
        tags.append(f"manylinux_2_{minor}_x86_64")
        if alias := _ALIASES.get((2, minor)):
            tags.append(f"{alias}_x86_64")
    return [*tags, "linux_x86_64"]


def ranking(python: str, glibc: str) -> dict[Tag, int]:
    """Returns each tag that CPython `python` on `glibc` accepts, with its rank (0 is best)."""
    version = tuple(int(part) for part in python.split("."))
    interpreter = "cp" + python.replace(".", "")
    tags = [
        *cpython_tags(version, platforms=platforms(glibc)),
        *compatible_tags(version, interpreter, platforms(glibc)),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def file_name(url: str) -> str:
    """Returns the file name at the end of an index address."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def best(offered: Iterable[dict[str, Any]], ranked: dict[Tag, int]) -> dict[str, Any] | None:
    """Returns the offered wheel of the best rank (ties: greatest build tag), or None."""
    choices = []
    for wheel in offered:
        _, _, build, tags = parse_wheel_filename(file_name(wheel["url"]))
        rank = min((ranked[tag] for tag in tags if tag in ranked), default=None)
        if rank is not None:
            choices.append((-rank, build, wheel))
    return max(choices, key=lambda choice: choice[:2])[2] if choices else None


def environment(python: str) -> dict[str, str]:
    """Returns the values of environment markers (PEP 508) on the closure's platform."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.2",
        "python_version": python,
        "sys_platform": "linux",
    }
