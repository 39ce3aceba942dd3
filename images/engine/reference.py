"""Image references: the grammar of the OCI distribution specification, and one clear line for what does not fit it."""

import re
from dataclasses import dataclass

from images.engine.errors import EngineError
from images.oci.names import REPOSITORY, TAG

_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Reference:
    """A reference with a tag: `[registry/]name:tag`. `registry` is empty where the text names none."""

    registry: str
    name: str
    tag: str

    @property
    def repository(self) -> str:
        """The text before the tag."""
        return f"{self.registry}/{self.name}" if self.registry else self.name

    def __str__(self) -> str:
        return f"{self.repository}:{self.tag}"


def parse(text: str) -> Reference:
    """Parse `[registry/]name:tag`.

    As every engine has it, the first component is a registry when it holds a dot, a colon or brackets, or is
    `localhost`.

    Raises:
        EngineError: a character that OCI forbids, no tag, or a digest in place of a tag.
    """
    if "@" in text:
        raise EngineError(f"{text!r}: a digest cannot be written to; give a tag, such as dsv41:vllm0.33.0-r1")
    head, slash, rest = text.partition("/")
    registry = head if slash and (any(mark in head for mark in ".:[") or head == "localhost") else ""
    path = rest if registry else text
    name, colon, tag = path.partition(":")
    if registry and not _REGISTRY.fullmatch(registry):
        raise EngineError(f"{text!r}: {registry!r} is not a registry; expected HOST or HOST:PORT")
    if not name or not REPOSITORY.fullmatch(name):
        raise EngineError(
            f"{text!r}: {name!r} is not an image name; OCI allows lower-case letters and digits, single . _ - between"
            " them and / between components"
        )
    if not colon:
        raise EngineError(f"{text!r} has no tag; write {text}:TAG, for example {text}:vllm0.33.0-r1")
    if not TAG.fullmatch(tag):
        raise EngineError(
            f"{text!r}: {tag!r} is not a tag; OCI allows up to 128 letters, digits, . _ - and no . or - first"
        )
    return Reference(registry, name, tag)
