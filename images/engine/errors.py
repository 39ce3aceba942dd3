"""The one exception of what talks to engines."""

from tools.cli.errors import UserError


class EngineError(UserError):
    """An engine is missing, refuses, or holds another image than expected; or a layout is broken."""
