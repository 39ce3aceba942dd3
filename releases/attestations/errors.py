"""The error of attestations and keys."""

from images.registry.errors import printable
from tools.cli.errors import UserError


class AttestationError(UserError):
    """An attestation that is missing, altered or not ours, or a key that cannot be used: one line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
