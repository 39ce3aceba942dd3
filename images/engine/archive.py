"""The tar that both generations of engines load: an OCI layout with Docker's manifest.json beside it.

Docker 20.10 refuses a pure OCI layout and reads manifest.json; newer engines read either. Layers that the
engine already has may be left out of the tar.
"""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from images.engine.layout import REF_NAME, Blob, Image
from images.engine.reference import Reference

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """A tar that is made while it is read: small members in memory, then blobs from the layout."""

    documents: tuple[tuple[str, bytes], ...]
    blobs: tuple[Blob, ...]

    @property
    def size(self) -> int:
        """Bytes that `chunks` yields in all."""
        sizes = [len(data) for _, data in self.documents] + [blob.size for blob in self.blobs]
        return sum(tarfile.BLOCKSIZE + size + -size % tarfile.BLOCKSIZE for size in sizes) + 2 * tarfile.BLOCKSIZE

    def chunks(self, sent: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the tar in pieces of about a megabyte and call `sent` with the length of each."""
        for name, data in self.documents:
            yield from _member(name, len(data), io.BytesIO(data), sent)
        for blob in self.blobs:
            with blob.path.open("rb") as stream:
                yield from _member(_path(blob), blob.size, stream, sent)
        end = bytes(2 * tarfile.BLOCKSIZE)
        sent(len(end))
        yield end


def build(image: Image, reference: Reference, skip: int) -> Archive:
    """The tar of `image` under `reference`, without the blobs of its first `skip` layers."""
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": image.manifest.digest,
                "size": image.manifest.size,
                "annotations": {REF_NAME: str(reference)},
            }
        ],
    }
    docker = [
        {
            "Config": _path(image.config),
            "RepoTags": [str(reference)],
            "Layers": [_path(layer.blob) for layer in image.layers],
        }
    ]
    documents = (
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", json.dumps(index).encode()),
        ("manifest.json", json.dumps(docker).encode()),
        (_path(image.config), image.config.path.read_bytes()),
        (_path(image.manifest), image.manifest.path.read_bytes()),
    )
    unique = dict.fromkeys(layer.blob for layer in image.layers[skip:])
    return Archive(documents, tuple(unique))


def _path(blob: Blob) -> str:
    return f"blobs/{blob.digest.replace(':', '/', 1)}"


def _member(name: str, size: int, stream: io.BufferedIOBase, sent: Callable[[int], None]) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size
    header = info.tobuf(tarfile.GNU_FORMAT)
    sent(len(header))
    yield header
    while chunk := stream.read(_CHUNK):
        sent(len(chunk))
        yield chunk
    if padding := bytes(-size % tarfile.BLOCKSIZE):
        sent(len(padding))
        yield padding
