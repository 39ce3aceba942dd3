"""An image of a tar as docker save writes it, without OCI's documents."""

from collections.abc import Iterator
from typing import Any

from images.inspect import documents, limits
from images.inspect.errors import InspectError
from images.inspect.places import Place, small
from images.inspect.tar import inside
from images.inspect.view import Found
from images.manifest import model

MARK = "manifest.json"


def find(place: Place, source: str, name: str | None) -> Found:
    """The image called `name` (NAME:TAG or id), or the only one. Raises InspectError."""
    where = f"{source}: manifest.json"
    try:
        listed = model.loads(small(place, MARK, limits.DOCUMENT))
    except (model.DataError, ValueError) as error:
        raise InspectError(f"{where}: {error}: it is corrupt, or no saved image") from None
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        raise InspectError(f"{where}: is no list of images: it is no tar of docker save")
    chosen = [entry for entry in listed if name is None or name in _names(entry)]
    if len(chosen) != 1:
        has = ", ".join(" ".join(sorted(_names(entry))) or "one without a name" for entry in listed[:8])
        raise InspectError(f"{source}: has {len(listed)} images ({has}): say which one is meant with --ref NAME:TAG")
    files = [_file(chosen[0].get("Config"), where)]
    layers = chosen[0].get("Layers")
    if not isinstance(layers, list):
        raise InspectError(f"{where}: the image has no list of layers: it is corrupt")
    files += [_file(entry, where) for entry in layers]
    config = small(place, files[0], limits.DOCUMENT)
    stated = files[0].rpartition("/")[2].removesuffix(".json")
    found = documents.digest(config)
    if len(stated) == 64 and found != f"sha256:{stated}":
        raise InspectError(f"{source}: {files[0]} has {found}: it is corrupt: save it again")

    def open_layer(number: int) -> Iterator[bytes]:
        if number + 1 >= len(files):
            raise InspectError(f"{where}: the image has {len(files) - 1} layers, its configuration more: it is corrupt")
        return place.chunks(files[number + 1])

    return Found("tar", source, config, None, open_layer)


def _names(entry: dict[str, Any]) -> set[str]:
    tags = entry.get("RepoTags")
    identifier = str(entry.get("Config")).rpartition("/")[2].removesuffix(".json")
    return {str(tag) for tag in tags or []} | {f"sha256:{identifier}"} if isinstance(tags, list | None) else set()


def _file(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise InspectError(f"{where}: names a file that is none ({value!r}): it is corrupt")
    return inside(value, where)
