"""The first file in which two layers differ, and how."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

from images.inspect import limits
from images.inspect.errors import InspectError
from images.inspect.stream import Layer
from images.inspect.view import View

_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileDifference:
    """`path` is the first entry that differs, without a leading slash, or "" where no entry does.

    `what` names each difference: "content", "mode" ..., or "missing in the rebuilt image", with (released, rebuilt).
    """

    path: str
    what: dict[str, tuple[Any, Any]]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"path": self.path, "what": {name: list(pair) for name, pair in self.what.items()}}

    def sentence(self) -> str:
        """For people, without the path."""
        return ", ".join(
            f"{name} ({one} was released, {other} was built)" if one is not None or other is not None else name
            for name, (one, other) in self.what.items()
        )


def first(released: View, rebuilt: View, index: int) -> FileDifference:
    """Reads layer `index` of both images whole, checks its hashes, and compares entry by entry, in the tar's order.

    Raises InspectError where one is corrupt.
    """
    one, other = _entries(released, index), _entries(rebuilt, index)
    for path, fields in one.items():
        if path not in other:
            return FileDifference(path, {"missing in the rebuilt image": (None, None)})
        found = {key: (value, other[path][key]) for key, value in fields.items() if value != other[path][key]}
        if found:
            return FileDifference(path, found)
    for path in other:
        if path not in one:
            return FileDifference(path, {"missing in the released image": (None, None)})
    if list(one) != list(other):
        path = next(path for path, same in zip(one, other, strict=True) if path != same)
        return FileDifference(path, {"order of the entries": (None, None)})
    return FileDifference("", {"compression, or the tar's own headers": (None, None)})


def _entries(view: View, index: int) -> dict[str, dict[str, Any]]:
    if view.open_layer is None:
        raise InspectError(f"{view.source}: its layers cannot be read from there")
    layer = view.layers[index]
    where = f"{view.source}: layer {index + 1} ({layer.name})"
    stream = Layer(view.open_layer(index), where, limits.LAYER)
    try:
        entries = dict(_walk(stream))
    except (tarfile.TarError, EOFError) as error:
        raise InspectError(f"{where}: is no tar, or a corrupt one ({error})") from None
    stream.check(layer.digest, layer.size, layer.diff_id)
    return entries


def _walk(stream: Layer) -> Iterator[tuple[str, dict[str, Any]]]:
    with tarfile.open(fileobj=cast(IO[bytes], stream.reader), mode="r|") as tar:
        for member in tar:
            content = member.linkname
            if member.isreg():
                hashed = hashlib.sha256()
                source = tar.extractfile(member)
                while source and (data := source.read(_CHUNK)):
                    hashed.update(data)
                content = "sha256:" + hashed.hexdigest()
            yield member.name, {
                "type": member.type.decode(errors="replace"),
                "mode": f"{member.mode:o}",
                "owner": f"{member.uid}:{member.gid}",
                "mtime": member.mtime,
                "size": member.size,
                "content": content,
            }
