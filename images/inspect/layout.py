"""An image of an OCI layout, be it a folder or in a tar."""

from collections.abc import Iterator

from images.inspect import documents, limits
from images.inspect.errors import InspectError
from images.inspect.places import Place, small
from images.inspect.view import Found, Kind

MARK = "oci-layout"


def find(place: Place, kind: Kind, source: str, name: str | None) -> Found:
    """The image called `name` (NAME:TAG, TAG or digest), or the only one. Raises InspectError."""
    index = documents.json_object(small(place, "index.json", limits.DOCUMENT), f"{source}: index.json")
    chosen = documents.choose(documents.entries(index, f"{source}: index.json"), name, source)
    if chosen.media_type in documents.INDEXES:
        nested = documents.json_object(_blob(place, chosen, source), f"{source}: index {chosen.digest}")
        chosen = documents.choose(documents.entries(nested, source), None, f"{source}: index {chosen.digest}")
    data = _blob(place, chosen, source)
    image = documents.image(data, f"{source}: manifest")
    config = _blob(place, image.config, source)

    def open_layer(number: int) -> Iterator[bytes]:
        layer = image.layers[number]
        size = place.size(_path(layer))
        if size != layer.size:
            state = "is missing" if size is None else f"has {size} bytes, {layer.size} were expected"
            raise InspectError(f"{source}: blob {layer.digest} {state}: fetch or build it again")
        return place.chunks(_path(layer))

    return Found(kind, source, config, data, open_layer)


def _path(blob: documents.Blob) -> str:
    return f"blobs/{blob.digest.replace(':', '/', 1)}"


def _blob(place: Place, blob: documents.Blob, source: str) -> bytes:
    data = small(place, _path(blob), limits.DOCUMENT)
    found = documents.digest(data)
    if found != blob.digest or len(data) != blob.size:
        raise InspectError(f"{source}: blob {blob.digest} has {found}: it is corrupt: fetch or build it again")
    return data
