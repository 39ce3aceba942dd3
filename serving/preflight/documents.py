"""JSON from a folder that anybody may have filled."""

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

# An index names each tensor once, about 100 bytes each.
_LIMIT = 256 << 20


class DocumentError(Exception):
    """What is wrong with a file, without its name."""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file; a pipe does not keep its opener waiting. Raises OSError, DocumentError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DocumentError("is no regular file")
    return descriptor


def read(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises OSError, DocumentError."""
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise DocumentError(f"has more than {_LIMIT:,} bytes")
    return parse(data)


def parse(data: bytes) -> dict[str, Any]:
    """The object that `data` is in JSON, which has no NaN. Raises DocumentError."""
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise DocumentError("is no JSON that anybody wrote: too deeply nested") from None
    except ValueError as error:
        raise DocumentError(f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise DocumentError("is no JSON object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
