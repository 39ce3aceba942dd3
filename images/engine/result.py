"""What a load did, for people and for machines."""

from dataclasses import asdict, dataclass
from typing import Any

from images.engine.errors import EngineError
from images.engine.reference import Reference


@dataclass(frozen=True)
class LoadResult:
    """The outcome of one load.

    Attributes:
        engine: name and version of the engine.
        reference: the tag that now points at the image.
        image_id: the engine's id of the image: the config's digest (the manifest's in a containerd image store).
        manifest_digest: digest of the layout's manifest.
        bytes_sent: bytes handed to the engine: Docker's whole tar, podman's fetched blobs.
        layers_sent: layers among them.
        layers_skipped: layers that the engine already had.
        replaced: id of the image that the tag pointed at before, None where it pointed at none or at this one.
    """

    engine: str
    reference: str
    image_id: str
    manifest_digest: str
    bytes_sent: int
    layers_sent: int
    layers_skipped: int
    replaced: str | None

    def document(self, seconds: float) -> dict[str, Any]:
        """The result as JSON has it, with the wall time."""
        return {**asdict(self), "seconds": round(seconds, 3)}

    def lines(self, seconds: float) -> list[str]:
        """The result in words, one fact a line."""
        sent = f"{self.bytes_sent / 1e6:,.1f} MB in {seconds:.1f} s"
        layers = f"{self.layers_sent} layers sent, {self.layers_skipped} already there"
        lines = [f"{self.reference} is in {self.engine}: {sent}, {layers}", f"image id {self.image_id}"]
        if self.replaced:
            lines.append(f"the tag moved: it pointed at {self.replaced}, which stays in the engine without it")
        return lines


def refuse_to_move(engine: str, reference: Reference, held: str | None, given: str) -> None:
    """Raises EngineError where `reference` is a release's tag that points at another image than `given` already."""
    if held in (None, given) or not reference.is_release:
        return
    program = engine.partition(" ")[0]
    raise EngineError(
        f"{reference} is {held} in {engine}, the layout is {given}: a release's tag is never moved;"
        f" if the engine's is not the release, give it another name ({program} tag {held} OTHER:NAME;"
        f" {program} rmi {reference}) and load again"
    )
