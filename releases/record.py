"""The record of a release: the three small documents that its digest covers, kept in the tree.

`releases/records/<line>/<base>-r<N>/` holds image.json (the OCI manifest, whose SHA-256 is the image's digest),
config.json (the OCI configuration, whose digest image.json states) and manifest.json (Moet's manifest, whose SHA-256
the configuration's environment states). With them, steps, pins, switches and layers of any release are known without
the image; and nobody can alter one unseen.
"""

import hashlib
import json
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, Self

from images.manifest import model
from releases.tag import Tag
from tools.cli.errors import UserError

FILES = ("image.json", "config.json", "manifest.json")


@dataclass(frozen=True)
class Record:
    """A release's documents, as bytes and read. `digest` is the image's, `image_id` the configuration's."""

    image: bytes
    config: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        """sha256:<hex> of the OCI manifest."""
        return "sha256:" + hashlib.sha256(self.image).hexdigest()

    @property
    def image_id(self) -> str:
        """sha256:<hex> of the configuration: the id that Docker's classic store and podman give the image."""
        return "sha256:" + hashlib.sha256(self.config).hexdigest()

    @property
    def oci_manifest(self) -> dict[str, Any]:
        """The OCI manifest."""
        return dict(json.loads(self.image))

    @property
    def oci_config(self) -> dict[str, Any]:
        """The OCI configuration."""
        return dict(json.loads(self.config))

    @property
    def moet(self) -> model.Manifest:
        """Moet's manifest."""
        return model.decode(model.Manifest, model.loads(self.manifest))

    @classmethod
    def read(cls, folder: Traversable, tag: Tag) -> Self | None:
        """Reads the record of `tag` below `folder` (releases/records) and checks its hashes; None: there is none.

        Raises UserError where a document is missing or is not the one that its digest covers.
        """
        place = folder.joinpath(tag.line).joinpath(tag.name)
        if not place.is_dir():
            return None
        where = f"releases/records/{tag.line}/{tag.name}"
        try:
            record = cls(*(place.joinpath(name).read_bytes() for name in FILES))
        except OSError as error:
            raise UserError(f"{where}: {error.strerror}: {error.filename}; git checkout -- {where}") from None
        record.check(where)
        return record

    def files(self) -> dict[str, bytes]:
        """The documents by file name."""
        return dict(zip(FILES, (self.image, self.config, self.manifest), strict=True))

    def check(self, where: str) -> None:
        """Raises UserError, naming `where`, unless image, configuration and manifest belong together."""
        try:
            stated = self.oci_manifest["config"]["digest"]
            environment = dict(entry.split("=", 1) for entry in self.oci_config["config"]["Env"])
            anchor = environment.get(model.ANCHOR)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{where}: is no image of Moet's: its documents are not the ones expected") from None
        if stated != self.image_id:
            raise UserError(f"{where}: config.json has {self.image_id}, image.json states {stated}: one was altered")
        found = hashlib.sha256(self.manifest).hexdigest()
        if anchor != found:
            raise UserError(f"{where}: manifest.json has sha256 {found}, config.json states {anchor}: one was altered")
