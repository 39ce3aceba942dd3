"""systemd's notification protocol (sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names."""

import os
import socket
from collections.abc import Mapping


class Notify:
    """Tells systemd; does nothing where it did not start this process."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is in the abstract name space.
        self._address = f"\0{name[1:]}" if name.startswith("@") else name

    def tell(self, **states: str) -> None:
        """Sends assignments such as READY=1. One that cannot be sent is lost: systemd's own limits notice."""
        if not self._address:
            return
        text = "\n".join(f"{name}={' '.join(value.split())}" for name, value in states.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.settimeout(1)
                out.sendto(text.encode(), self._address)
        except OSError:
            return
