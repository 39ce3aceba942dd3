"""Attestation: the image is what its manifest says, and its manifest is the one that it was built with.

The manifest's hash is anchored in the image's configuration (Env), which the image's digest covers.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from images.manifest import model
from serving.runtime import bytecode, files, imports, record, switches
from serving.runtime.mismatch import Mismatch, inside

_SHA256 = re.compile(r"[0-9a-f]{64}")


class CannotAttestError(Exception):
    """There is nothing to attest against; one line that names what is missing and what to do."""


@dataclass(frozen=True)
class Attestation:
    """What was found. `manifest` is None where the manifest itself is not the expected one.

    `errors` are switches set to values that they do not take, `warnings` variables that do nothing, one
    line each.
    """

    manifest_sha256: str
    manifest: model.Manifest | None
    mismatches: tuple[Mismatch, ...]
    steps: tuple[switches.StepState, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the server may start."""
        return not self.mismatches and not self.errors


def attest(root: str, environment: Mapping[str, str], python: str, anchor: str | None = None) -> Attestation:
    """Checks the image below `root` as the server would find it in `environment`, run by `python`.

    `anchor` is the manifest's expected hash in hex, from outside the image; None takes it from the
    environment. Raises CannotAttestError.
    """
    expected = _anchor(environment) if anchor is None else anchor
    if not _SHA256.fullmatch(expected):
        raise CannotAttestError(f"{expected!r} is no sha256 of a manifest: expected 64 hexadecimal digits")
    data = read_manifest(root)
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        edited = Mismatch("manifest", model.PATH, f"sha256 {expected}", f"sha256 {found}")
        return Attestation(found, None, (edited,))
    manifest = parse_manifest(data)
    origins = imports.check(root, manifest, python, environment)
    mismatches = (
        *files.check(root, manifest.files),
        *record.check(root, manifest),
        *origins.mismatches,
        *bytecode.check(root, manifest, origins.pycache_prefix),
    )
    return Attestation(
        found,
        manifest,
        mismatches,
        switches.states(manifest, environment),
        switches.errors(manifest, environment),
        switches.warnings(manifest, environment),
    )


def read_manifest(root: str) -> bytes:
    """The manifest's bytes. Raises CannotAttestError."""
    try:
        with open(inside(root, model.PATH), "rb") as file:
            return file.read()
    except OSError as error:
        raise CannotAttestError(
            f"{model.PATH}: cannot be read: {error.strerror}: recreate the container from the image's digest"
        ) from None


def parse_manifest(data: bytes) -> model.Manifest:
    """The manifest from its bytes. Raises CannotAttestError."""
    try:
        return model.decode(model.Manifest, model.loads(data))
    except model.DataError as error:
        raise CannotAttestError(
            f"{model.PATH}: {error}: expected {model.SCHEMA}; rebuild the image"
        ) from None


def _anchor(environment: Mapping[str, str]) -> str:
    if model.ANCHOR not in environment:
        raise CannotAttestError(
            f"{model.ANCHOR} is not set: the image sets it to its manifest's hash; "
            "do not clear the environment, or set it from the label org.moet.manifest.sha256"
        )
    return environment[model.ANCHOR]
