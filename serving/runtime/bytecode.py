"""What Python would run instead of an attested source file: stale bytecode, extension modules, packages."""

import importlib.machinery
import importlib.util
import marshal
import os
import sys
import warnings
from collections.abc import Iterator

from images.manifest import model
from serving.runtime.mismatch import Mismatch, inside

_HEADER = 16
_LEVELS = {"": 0, ".opt-1": 1, ".opt-2": 2}


def check(root: str, manifest: model.Manifest, pycache_prefix: str | None) -> list[Mismatch]:
    """Every file that Python would load instead of an attested `.py`.

    `pycache_prefix` is the server's; the runtime's own files are started without one.
    """
    mismatches = []
    for file in manifest.files:
        if file.path.endswith(".py"):
            prefix = None if file.kind == "runtime" else pycache_prefix
            mismatches += [*_shadows(root, file.path), *_stale(root, file.path, prefix)]
    return mismatches


def _shadows(root: str, source: str) -> Iterator[Mismatch]:
    """A finder takes a package, then an extension module, before the source file of the same name."""
    stem = source.removesuffix(".py")
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    candidates = [stem + suffix for suffix in suffixes]
    candidates += [f"{stem}/__init__{suffix}" for suffix in (*suffixes, ".py", ".pyc")]
    for candidate in candidates:
        if os.path.lexists(inside(root, candidate)):
            yield Mismatch("bytecode", candidate, f"nothing that is loaded instead of {source}", "a module")


def _stale(root: str, source: str, prefix: str | None) -> Iterator[Mismatch]:
    host = inside(root, source)
    folder, name = os.path.split(host)
    cache = (
        os.path.join(folder, "__pycache__") if prefix is None else os.path.join(prefix, folder.lstrip("/"))
    )
    stem = name.removesuffix(".py")
    for level, optimize in _LEVELS.items():
        path = os.path.join(cache, f"{stem}.{sys.implementation.cache_tag}{level}.pyc")
        try:
            with open(path, "rb") as file:
                cached = file.read()
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Mismatch("bytecode", path, f"bytecode of {source}", str(error.strerror))
            continue
        try:
            with open(host, "rb") as file:
                data, status = file.read(), os.fstat(file.fileno())
        except OSError:
            return
        if _is_used(cached, data, status) and not _is_compiled_from(cached, data, host, optimize):
            yield Mismatch(
                "bytecode", path, f"bytecode of {source}", "that of another source, which would run"
            )


def _is_used(cached: bytes, source: bytes, status: os.stat_result) -> bool:
    """Whether Python takes the cached bytecode for the source's (PEP 552)."""
    flags = int.from_bytes(cached[4:8], "little")
    if len(cached) < _HEADER or cached[:4] != importlib.util.MAGIC_NUMBER or flags & ~0b11:
        return False
    if flags & 0b01:
        return not flags & 0b10 or cached[8:16] == importlib.util.source_hash(source)
    stamp = int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
    return stamp == (int.from_bytes(cached[8:12], "little"), int.from_bytes(cached[12:16], "little"))


def _is_compiled_from(cached: bytes, source: bytes, path: str, optimize: int) -> bool:
    try:
        code = marshal.loads(cached[_HEADER:])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(code == compile(source, path, "exec", dont_inherit=True, optimize=optimize))
    except (EOFError, ValueError, TypeError, SyntaxError):
        return False
