"""Image references: the grammar of the OCI distribution specification, and one clear line for what does not fit it."""

import re
from dataclasses import dataclass

from images.engine.errors import EngineError
from images.oci.names import REPOSITORY, TAG
from releases.tag import Tag
from tools.cli.errors import UserError

_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")

_ASKED = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._/:@\[\]-]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


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

    @property
    def is_release(self) -> bool:
        """Whether name and tag are those of a release, which are written once and never moved."""
        try:
            Tag.parse(f"{self.name.rpartition('/')[2]}:{self.tag}")
        except UserError:
            return False
        return True

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


def may_name_image(text: str) -> bool:
    """Whether an engine can be asked for `text`: a reference, a digest or an id, and no path or option."""
    return bool(_ASKED.fullmatch(text)) and ".." not in text and "//" not in text


def plain(text: str) -> str:
    """A reference of an engine without the `localhost/` that podman puts before names that have no registry."""
    return text.removeprefix("localhost/")


def split_digest(text: str) -> tuple[str, str]:
    """Splits REGISTRY/NAME@sha256:<hex>.

    Raises:
        EngineError: it has no digest, or no registry.
    """
    repository, at, digest = text.partition("@")
    if not at or not _DIGEST.fullmatch(digest):
        raise EngineError(f"{text!r} has no digest; expected REGISTRY/NAME@sha256:<64 hex digits>")
    if not parse(f"{repository}:digest").registry:
        raise EngineError(f"{repository!r} names no registry; write REGISTRY/{repository}")
    return repository, digest
