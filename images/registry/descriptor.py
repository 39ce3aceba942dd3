"""What OCI calls a descriptor: the type, the digest and the size of something that is stored elsewhere."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from images.registry.errors import RegistryError

DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


@dataclass(frozen=True)
class Descriptor:
    """A pointer to a blob or a manifest. `digest` is <algorithm>:<hex>, `size` in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    @classmethod
    def of(cls, media_type: str, data: bytes) -> Self:
        """The descriptor of `data`."""
        return cls(media_type, digest_of(data), len(data))

    @classmethod
    def read(cls, value: Any, where: str) -> Self:
        """Reads a descriptor of a manifest or an index; `where` names that in the message.

        Raises RegistryError where it is none.
        """
        try:
            annotations = {str(key): str(text) for key, text in (value.get("annotations") or {}).items()}
            media_type, digest, size = value["mediaType"], value["digest"], value["size"]
            kind = value.get("artifactType")
        except (AttributeError, KeyError, TypeError):
            raise RegistryError(f"{where}: has something else where OCI puts a descriptor") from None
        strings = isinstance(media_type, str) and isinstance(digest, str) and isinstance(kind, str | None)
        if not strings or type(size) is not int or size < 0 or not DIGEST.fullmatch(digest):
            raise RegistryError(f"{where}: has a descriptor without a type, a sha256 digest or a size")
        return cls(media_type, digest, size, annotations, kind)

    def document(self) -> dict[str, Any]:
        """The descriptor as OCI's JSON has it."""
        document: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type is not None:
            document["artifactType"] = self.artifact_type
        if self.annotations:
            document["annotations"] = dict(self.annotations)
        return document


def digest_of(data: bytes, like: str = "sha256:") -> str:
    """The digest of `data`, made with the algorithm of the digest `like`."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
