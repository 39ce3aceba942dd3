"""Attestations beside an image in its registry: OCI artifacts that refer to it."""

import json
from dataclasses import dataclass

from images.registry.client import MANIFEST, Registry
from images.registry.descriptor import Descriptor
from images.registry.errors import RegistryError
from releases.attestations import dsse
from releases.attestations.statement import PAYLOAD_TYPE

ARTIFACT_TYPE = PAYLOAD_TYPE
# The key that other tools look for too.
PREDICATE_TYPE = "in-toto.io/predicate-type"
_CREATED = "org.opencontainers.image.created"
_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_MOST = 32 << 20


@dataclass(frozen=True)
class Attestation:
    """An artifact that refers to an image; `envelope` is what it holds, `predicate_type` what its entry says it is."""

    descriptor: Descriptor
    predicate_type: str | None
    envelope: bytes


def attach(
    registry: Registry,
    name: str,
    image: Descriptor,
    artifact_type: str,
    media_type: str,
    data: bytes,
    annotations: dict[str, str] | None = None,
) -> Descriptor:
    """Puts `data` beside `image`; where it is there already, nothing changes.

    Args:
        registry: where the image is.
        name: the image's repository.
        image: the image's descriptor.
        artifact_type: what the artifact is.
        media_type: of `data`.
        data: what is attached.
        annotations: of the artifact and its entry in the list of referrers.

    Raises:
        RegistryError: the registry refused.
    """
    config = Descriptor.of(_EMPTY_TYPE, _EMPTY)
    layer = Descriptor.of(media_type, data)
    subject = Descriptor(image.media_type, image.digest, image.size)
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact_type,
        "config": config.document(),
        "layers": [layer.document()],
        "subject": subject.document(),
        "annotations": annotations or {},
    }
    manifest = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    made = Descriptor.of(MANIFEST, manifest)
    entry = Descriptor(MANIFEST, made.digest, made.size, annotations or {}, artifact_type)
    registry.push_blob(name, config, _EMPTY)
    registry.push_blob(name, layer, data)
    registry.push_referrer(name, image.digest, manifest, entry)
    return entry


def attach_envelope(
    registry: Registry, name: str, image: Descriptor, predicate_type: str, created: str | None, envelope: bytes
) -> Descriptor:
    """Puts a signed statement beside `image`. Raises RegistryError."""
    annotations = {PREDICATE_TYPE: predicate_type} | ({_CREATED: created} if created else {})
    return attach(registry, name, image, ARTIFACT_TYPE, dsse.MEDIA_TYPE, envelope, annotations)


def fetch(registry: Registry, name: str, digest: str) -> list[Attestation]:
    """The attestations beside the image `digest`.

    What others attached and is none is left out, and what is listed and was deleted. Raises RegistryError.
    """
    found = []
    for entry in registry.referrers(name, digest, ARTIFACT_TYPE):
        if registry.resolve(name, entry.digest) is None:
            continue
        descriptor, data = registry.manifest(name, entry.digest)
        where = f"{registry.address}/{name}@{entry.digest}"
        manifest = json.loads(data)
        if not isinstance(manifest.get("layers"), list) or not isinstance(manifest.get("subject"), dict):
            continue
        # A list of referrers is written by clients: whether this one refers to the image it says itself.
        if manifest["subject"].get("digest") != digest:
            continue
        for value in manifest["layers"]:
            layer = Descriptor.read(value, where)
            if layer.media_type != dsse.MEDIA_TYPE:
                continue
            if layer.size > _MOST:
                raise RegistryError(f"{where}: an attestation of {layer.size} bytes is not read; remove it")
            annotations = manifest.get("annotations")
            kind = annotations.get(PREDICATE_TYPE) if isinstance(annotations, dict) else None
            envelope = b"".join(registry.blob(name, layer))
            found.append(Attestation(descriptor, kind if isinstance(kind, str) else None, envelope))
    return found
