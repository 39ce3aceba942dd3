"""The software bill of materials of an image: CycloneDX 1.6, the same bytes every time.

Components are the pins, by what the package managers of the image call them, with the hash of the file that was
fetched. The image itself is what the bill is about. The time is the image's own; there is no clock in it.
"""

import datetime
import hashlib
import uuid
from typing import TYPE_CHECKING

from images.manifest import model
from releases.attestations import identity
from releases.attestations.errors import AttestationError
from releases.record import Record

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

PREDICATE = "https://cyclonedx.org/bom"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def sbom(record: Record) -> bytes:
    """The bill of a release, as JSON."""
    return document(record.moet, record.digest, record.image_id, record.oci_config.get("created"))


def document(manifest: model.Manifest, digest: str | None, image_id: str, created: str | None) -> bytes:
    """The bill of any image of Moet's.

    Args:
        manifest: Moet's manifest of the image.
        digest: of the OCI manifest; None where it is not known (an engine that has only the configuration).
        image_id: sha256:<hex> of the OCI configuration.
        created: the image's time, RFC 3339; None where it states none.

    Raises:
        AttestationError: `created` is no time.
    """
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.output.json import JsonV1Dot6

    subject = _image(manifest, digest, image_id)
    components = [_component(pin, manifest) for pin in manifest.pins]
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"urn:moet:image:{digest or image_id}"),
        version=1,
        metadata=BomMetaData(component=subject, timestamp=_time(created)),
        components=components,
    )
    bom.register_dependency(subject, components)
    return (JsonV1Dot6(bom).output_as_string(indent=1) + "\n").encode()


def _image(manifest: model.Manifest, digest: str | None, image_id: str) -> "Component":
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    name, _, tag = manifest.tag.partition(":")
    known = {
        "moet:base": f"{manifest.base.name} {manifest.base.version} {manifest.base.commit}",
        "moet:commit": getattr(manifest, "commit", None),
        "moet:image_id": image_id,
        "moet:manifest.sha256": hashlib.sha256(model.dumps(manifest)).hexdigest(),
        "moet:pins": str(len(manifest.pins)),
    }
    steps = [(f"moet:step:{step.number}", step.name) for step in manifest.steps]
    properties = [*((key, value) for key, value in known.items() if value is not None), *steps]
    return Component(
        type=ComponentType.CONTAINER,
        bom_ref=digest or image_id,
        name=name,
        version=tag,
        purl=PackageURL("oci", None, name, digest, {"tag": tag}) if digest else None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.partition(":")[2])] if digest else None,
        properties=[Property(name=key, value=value) for key, value in properties],
    )


def _component(pin: model.Pin, manifest: model.Manifest) -> "Component":
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Commit, Component, ComponentType, Patch, PatchClassification, Pedigree
    from packageurl import PackageURL

    overlaid = any((pin.name, pin.file) == (overlay.project, overlay.source.file) for overlay in manifest.overlays)
    patches = manifest.patches if overlaid else ()
    pedigree = Pedigree(
        commits=[Commit(uid=pin.commit)] if pin.commit else None,
        patches=[Patch(type=PatchClassification.UNOFFICIAL)] if patches else None,
        notes="patched by " + ", ".join(patch.name for patch in patches) if patches else None,
    )
    return Component(
        type=ComponentType.LIBRARY,
        bom_ref=identity.reference(pin),
        name=pin.name,
        version=pin.version,
        purl=PackageURL.from_string(identity.purl(pin)),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=pin.sha256)] if pin.sha256 else None,
        pedigree=pedigree if pin.commit or patches else None,
        properties=[Property(name="moet:file", value=pin.file)] if pin.file else None,
    )


def _time(created: str | None) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(created) if created else _EPOCH
    except ValueError:
        raise AttestationError(f"{created!r}: is no time that an image states; expected 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
