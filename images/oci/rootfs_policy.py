"""The declared part of a root file system: what is dropped from the packages, and what their scripts would have made.

The file is TOML (third_party/debian/rootfs.toml). Globs are matched against whole paths without the
leading slash, after /bin, /sbin and /lib* moved into /usr; `*` also matches slashes. An entry that
matches nothing is an error, so the file cannot outlive the packages that it speaks of.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.oci.layer import LayerError


class PolicyError(LayerError):
    """A policy file that cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class Link:
    """A symbolic link that an alternative or a script would make; `owner` is the package it belongs to."""

    path: str
    target: str
    owner: str


@dataclass(frozen=True)
class Copy:
    """A file that a script would copy from its package's defaults."""

    source: str
    path: str


@dataclass(frozen=True)
class Text:
    """A small file that a script would write."""

    path: str
    text: str
    owner: str


@dataclass(frozen=True)
class Directory:
    """A directory with its mode and owner ids."""

    path: str
    mode: int
    uid: int
    gid: int
    owner: str


@dataclass(frozen=True)
class User:
    """An account beside the distribution's own; its group has the same name."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    comment: str


@dataclass(frozen=True)
class Policy:
    """All declarations; `drop` and `keep` are globs, `winners` maps a path to the package that may have it.

    `certificates` are globs of CA certificates for the bundle at `bundle`; "" makes none.
    """

    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    copies: tuple[Copy, ...] = ()
    texts: tuple[Text, ...] = ()
    directories: tuple[Directory, ...] = ()
    users: tuple[User, ...] = ()
    winners: dict[str, str] = field(default_factory=dict)
    certificates: tuple[str, ...] = ()
    bundle: str = ""


def read(path: Path) -> Policy:
    """Reads a policy file.

    Raises PolicyError on a table or key that is unknown or missing.
    """
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{path.name}: not TOML: {error}") from None
    known = {"drop", "keep", "link", "copy", "text", "directory", "user", "winner", "certificates"}
    if unknown := sorted(data.keys() - known):
        raise PolicyError(f"{path.name}: unknown table {', '.join(unknown)}; expected {', '.join(sorted(known))}")
    try:
        certificates = data.get("certificates", {"globs": [], "bundle": ""})
        return Policy(
            drop=_globs(data, "drop"),
            keep=_globs(data, "keep"),
            links=tuple(Link(**row) for row in _rows(data, "link")),
            copies=tuple(Copy(**row) for row in _rows(data, "copy")),
            texts=tuple(Text(**row) for row in _rows(data, "text")),
            directories=tuple(Directory(**{**row, "mode": int(row["mode"], 8)}) for row in _rows(data, "directory")),
            users=tuple(User(**row) for row in _rows(data, "user")),
            winners={row["path"]: row["package"] for row in _rows(data, "winner")},
            certificates=tuple(certificates["globs"]),
            bundle=certificates["bundle"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PolicyError(f"{path.name}: an entry lacks a key or has a bad one: {error}") from None


def _rows(data: dict[str, Any], table: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "reason"} for row in data.get(table, [])]


def _globs(data: dict[str, Any], table: str) -> tuple[str, ...]:
    for row in data.get(table, []):
        if not row.get("reason"):
            raise ValueError(f"{table} {row.get('globs')} gives no reason")
    return tuple(glob for row in data.get(table, []) for glob in row["globs"])
