"""/etc/ld.so.cache, as glibc 2.36's ldconfig writes it, without running it.

The root's own ldconfig needs chroot(2), so it works for root alone, and it would run a program of the
image on the build machine. The format is small (glibc's sysdeps/generic/dl-cache.h); a test compares
the bytes with those of the root's own ldconfig.
"""

import fnmatch
import functools
import io
import posixpath
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from images.oci.rootfs_tree import Tree, TreeError

_CACHE = "etc/ld.so.cache"
_CONF = "etc/ld.so.conf"
_LDCONFIG = "usr/sbin/ldconfig"
_BUILTIN = ("lib", "usr/lib")
_X86_64_LIBC6 = 0x0303
_LITTLE_ENDIAN = 2
_EXTENSION_MAGIC = 0xEAA42174
_HEADER = struct.Struct("<17s3sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_GENERATOR = re.compile(rb"ldconfig \([^()\0]+\) [a-z]+ release version [0-9.]+")


@dataclass(frozen=True)
class Library:
    """One line of the cache: the name that programs ask for, and the absolute path that answers."""

    name: str
    path: str


def record(tree: Tree) -> None:
    """Adds the cache to the tree, if the tree has ldconfig."""
    if _LDCONFIG not in tree.nodes:
        return
    found = _GENERATOR.search(tree.data(_LDCONFIG, "the generator line of ld.so.cache"))
    if not found:
        raise TreeError(f"/{_LDCONFIG}: not glibc's ldconfig, so the format of ld.so.cache is unknown")
    tree.file(_CACHE, render(list(libraries(tree)), found.group()), tree.nodes[_LDCONFIG].owner)


def soname(data: bytes) -> str | None:
    """Returns the DT_SONAME of an ELF shared library, "" when it has none, or None for any other file."""
    if data[:4] != b"\x7fELF":
        return None
    try:
        for segment in ELFFile(io.BytesIO(data)).iter_segments():
            if isinstance(segment, DynamicSegment):
                return next((str(tag.soname) for tag in segment.iter_tags("DT_SONAME")), "")  # type: ignore[attr-defined]
    except ELFError:
        return None
    return None


def folders(tree: Tree) -> list[str]:
    """Returns the folders that ldconfig searches (relative to the root), in its order, each once."""
    wanted = [*_configured(tree, _CONF), *_BUILTIN]
    real: dict[str, str] = {}
    for folder in wanted:
        if (target := tree.real(folder)) is not None:
            real.setdefault(target, folder)
    return list(real.values())


def libraries(tree: Tree) -> Iterator[Library]:
    """Yields every library of the tree once a folder, under its soname, newest version first."""
    for folder in folders(tree):
        real = tree.real(folder)
        best: dict[str, tuple[bool, str]] = {}
        for path in sorted(tree.nodes):
            name = posixpath.basename(path)
            if posixpath.dirname(path) != real or not name.startswith(("lib", "ld-")) or ".so" not in name:
                continue
            target = tree.real(path)
            if target is None or tree.nodes[target].member.kind != "f":
                continue
            given = soname(tree.nodes[target].member.data)
            if given is None:
                continue
            given = given or posixpath.basename(target)
            is_link = tree.nodes[path].member.kind == "l" and _is_alias(name, given)
            key = name if is_link else given
            known = best.get(key)
            if known is None or (known[0], -compare(known[1], name)) > (is_link, 0):
                best[key] = (is_link, name)
        yield from (Library(key, f"/{folder}/{key}") for key in best)


def compare(one: str, other: str) -> int:
    """Compares library names as the dynamic linker does: runs of digits as numbers, digits after all else."""
    pairs = zip(_parts(one), _parts(other), strict=False)
    for left, right in pairs:
        if left != right:
            if isinstance(left, int) != isinstance(right, int):
                return 1 if isinstance(left, int) else -1
            return 1 if left > right else -1  # type: ignore[operator]
    return len(_parts(one)) - len(_parts(other))


def render(found: list[Library], generator: bytes) -> bytes:
    """Returns the bytes of a cache of x86-64 libraries, with `generator` as the line that says who wrote it."""
    by_name = functools.cmp_to_key(compare)
    ordered = sorted(found, key=lambda library: by_name(library.name), reverse=True)
    texts, table = _string_table({text for library in ordered for text in (library.name, library.path)})
    start = _HEADER.size + _ENTRY.size * len(ordered)
    entries = b"".join(
        _ENTRY.pack(_X86_64_LIBC6, start + texts[library.name], start + texts[library.path], 0, 0)
        for library in ordered
    )
    extension = start + len(table)
    padding = -extension % 4
    extension += padding
    head = _HEADER.pack(b"glibc-ld.so.cache", b"1.1", len(ordered), len(table), _LITTLE_ENDIAN, extension)
    section = struct.pack("<IIIIII", _EXTENSION_MAGIC, 1, 0, 0, extension + 24, len(generator))
    return head + entries + table + bytes(padding) + section + generator


def _configured(tree: Tree, path: str) -> Iterator[str]:
    for line in tree.data(path, "ld.so.cache").decode().splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for glob in words[1:]:
                for name in sorted(fnmatch.filter(tree.nodes, glob.lstrip("/"))):
                    yield from _configured(tree, name)
        elif words:
            yield words[0].strip("/")


def _is_alias(link: str, given: str) -> bool:
    return link == given or (link.endswith(".so") and given.startswith(link))


def _parts(name: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.findall(r"\d+|\D", name)]


def _string_table(texts: set[str]) -> tuple[dict[str, int], bytes]:
    """Lays out NUL-terminated strings so that one which ends another shares its bytes."""
    ordered = sorted((text.encode() for text in texts), key=lambda text: text[::-1], reverse=True)
    offsets: dict[str, int] = {}
    table, previous, at = b"", b"", 0
    for text in ordered:
        if previous.endswith(text):
            at += len(previous) - len(text)
        else:
            at = len(table)
            table += text + b"\0"
        offsets[text.decode()] = at
        previous = text
    return offsets, table
