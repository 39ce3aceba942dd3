"""What compilers write about themselves into ELF files, and what the pinned one would."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from third_party.debian import lockfile


def comments(path: Path) -> list[str]:
    """Names and versions of the compilers of an object or a library, each once."""
    # pyelftools types sections by their common base.
    section: Any = ELFFile(io.BytesIO(path.read_bytes())).get_section_by_name(".comment")
    return [text for text in section.data().decode().split("\0") if text]


def pinned(lock: Mapping[str, lockfile.Deb]) -> str:
    """What the g++ of the locked packages writes.

    >>> pinned({"g++-12": lockfile.Deb("12.2.0-14", "amd64", "", "", 0, "main", "gcc-12", "12.2.0-14")})
    'GCC: (Debian 12.2.0-14) 12.2.0'
    """
    version = lock["g++-12"].version
    return f"GCC: (Debian {version}) {version.partition('-')[0]}"
