"""TCP ports of this host for the servers of tests."""

import random
import socket
from contextlib import suppress
from pathlib import Path

_FROM, _TO = 10_000, 65_536
# Tests seed the other one.
_random = random.SystemRandom()


def free_port() -> int:
    """A loopback port that nobody has, and that the kernel gives to nobody who asks for any or connects.

    So no other program takes it before its server starts, or while that is started again.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for port in range(_FROM, _TO) if not first <= port <= last] or list(range(first, last + 1))
    while True:
        port = _random.choice(ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
