"""The port that the API is reached at."""

import errno
import ipaddress
import socket

from serving.preflight import engine as engines
from serving.preflight.host import Docker
from serving.preflight.result import Result, finding, ok, skipped
from serving.preflight.subject import Subject


def check(subject: Subject, engine: Docker | None) -> list[Result]:
    """Whether the address is this host's and the port on it is free: by binding to it for a moment."""
    launch, bind, port = subject.launch, subject.knob("bind"), subject.knob("port")
    where = f"[{launch.bind}]:{launch.port}" if ":" in launch.bind else f"{launch.bind}:{launch.port}"
    try:
        _bind(launch.bind, launch.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return [_taken(subject, where, engine)]
        if error.errno == errno.EADDRNOTAVAIL:
            why = "the engine cannot listen at an address of another host"
            mend = f"ip -brief address lists them; --set {bind}=ADDRESS"
            return [finding("port", f"{launch.bind} is no address of this host", why, mend)]
        return [skipped("port", f"{where} cannot be tried: {error.strerror}")]
    return [ok("port", f"{where} is free ({bind}, {port})")]


def _bind(address: str, port: int) -> None:
    six = ipaddress.ip_address(address).version == 6
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the engine binds: connections that have ended do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind((address, port))


def _taken(subject: Subject, where: str, engine: Docker | None) -> Result:
    knob, number = subject.knob("port"), subject.launch.port
    holder = engines.publisher(engine, number)
    if holder and holder[0] == subject.launch.name:
        return skipped("port", f"{where} is served by the container {holder[0]} itself")
    why = "the container cannot start while another listens there"
    if holder:
        what = f"{where} is taken by the container {holder[0]}, from {holder[1]}"
        return finding("port", what, why, f"docker stop {holder[0]}, or --set {knob}=NUMBER")
    mend = f"ss -ltnp 'sport = :{number}' says by whom; or --set {knob}=NUMBER"
    return finding("port", f"{where} is taken", why, mend)
