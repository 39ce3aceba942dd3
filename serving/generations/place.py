"""Where the servers' states lie: $XDG_STATE_HOME/moet/servers/NAME (default ~/.local/state/moet/servers/NAME)."""

import os
from pathlib import Path


def folder(name: str) -> Path:
    """The folder of a server's state; it need not be there."""
    return _servers() / name


def names() -> list[str]:
    """The servers that this user's state knows, sorted."""
    try:
        found = list(_servers().iterdir())
    except FileNotFoundError:
        return []
    return sorted(one.name for one in found if (one / "state.json").is_file())


def _servers() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local/state") / "moet/servers"
