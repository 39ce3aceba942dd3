"""What the layers hold that two images do not share, file by file."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from images.inspect import limits, tar
from images.inspect.errors import InspectError
from images.inspect.stream import Layer
from images.inspect.view import View

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Item:
    """A file, link or folder. `content` is a file's SHA-256 in hex or a link's target; `layer` the one it is of."""

    kind: str
    mode: int
    size: int
    content: str
    layer: str

    def is_like(self, other: "Item") -> bool:
        """Whether it is the same in the image, whatever its layer."""
        mine, its = (self.kind, self.mode, self.content), (other.kind, other.mode, other.content)
        return mine == its


@dataclass(frozen=True)
class FileDifference:
    """By path, without a leading slash."""

    added: dict[str, Item]
    removed: dict[str, Item]
    changed: dict[str, tuple[Item, Item]]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "added": [{"path": path, **vars(item)} for path, item in self.added.items()],
            "removed": [{"path": path, **vars(item)} for path, item in self.removed.items()],
            "changed": [
                {"path": path, "from": vars(old), "to": vars(new)} for path, (old, new) in self.changed.items()
            ],
        }


def to_read(before: View, after: View) -> int:
    """Bytes of the blobs that compare() reads, as far as they are known."""
    pairs = ((before, _differing(before, after)), (after, _differing(after, before)))
    return sum(view.layers[index].size or 0 for view, indexes in pairs for index in indexes)


def compare(before: View, after: View, advance: Advance) -> FileDifference:
    """Reads every layer that only one of the images has, checks its hashes, and compares what they hold.

    `advance` is called with the bytes of each piece of a blob. Raises InspectError where the layers of one cannot be
    had, are corrupt or hostile.
    """
    old = _items(before, _differing(before, after), advance)
    new = _items(after, _differing(after, before), advance)
    return FileDifference(
        {path: new[path] for path in sorted(new) if path not in old},
        {path: old[path] for path in sorted(old) if path not in new},
        {path: (old[path], new[path]) for path in sorted(new) if path in old and not new[path].is_like(old[path])},
    )


def _differing(view: View, other: View) -> list[int]:
    shared = {layer.diff_id for layer in other.layers}
    return [index for index, layer in enumerate(view.layers) if layer.diff_id not in shared]


def _items(view: View, indexes: list[int], advance: Advance) -> dict[str, Item]:
    items: dict[str, Item] = {}
    for index in indexes:
        if view.open_layer is None:
            raise InspectError(
                f"{view.source}: its layers cannot be read from there: --files needs a layout, a tar or a registry's"
                " reference on both sides"
            )
        layer = view.layers[index]
        where = f"{view.source}: layer {index + 1} of {len(view.layers)} ({layer.name})"
        stream = Layer(_counted(view.open_layer(index), advance), where, limits.LAYER)
        for entry, content in tar.walk(stream.reader, where):
            if entry.kind == "folder":
                continue
            hashed = hashlib.sha256()
            for data in content.chunks():
                hashed.update(data)
            held = hashed.hexdigest() if entry.kind == "file" else entry.target
            items[entry.path] = Item(entry.kind, entry.mode, entry.size, held, layer.name)
        stream.check(layer.digest, layer.size, layer.diff_id)
    return items


def _counted(chunks: Iterator[bytes], advance: Advance) -> Iterator[bytes]:
    for data in chunks:
        advance(len(data))
        yield data
