"""The one error of the patch engine."""


class PatchError(Exception):
    """Bad input: the message is one line that names the thing, what was expected and what to do."""
