"""The one error of the patch engine."""

from tools.cli.errors import UserError


class PatchError(UserError):
    """Bad input: the message is one line that names the thing, what was expected and what to do."""
