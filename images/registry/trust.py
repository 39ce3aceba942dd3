"""Which certificates a registry may have, and which proxy leads to it."""

import ipaddress
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import requests.utils

from images.registry.errors import RegistryError

_FOLDERS = ("/etc/containers/certs.d", "/etc/docker/certs.d")


def context(address: str) -> ssl.SSLContext:
    """What the host trusts: its own authorities, those that the environment names, those of certs.d for `address`.

    Raises RegistryError where a named file cannot be read.
    """
    made = ssl.create_default_context()
    named = [os.environ[name] for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)]
    local = [str(path) for folder in _FOLDERS for path in sorted(Path(folder, address).glob("*.crt"))]
    for path in [*named, *local]:
        try:
            made.load_verify_locations(*((None, path) if os.path.isdir(path) else (path, None)))
        except (OSError, ssl.SSLError) as error:
            raise RegistryError(f"{path}: cannot be read as certificates ({error})") from None
    return made


def proxies(url: str) -> dict[str, str]:
    """The environment's proxies for `url`; none for this machine itself, whatever NO_PROXY says."""
    if is_loopback(urlsplit(url).hostname or ""):
        return {}
    return dict(requests.utils.get_environ_proxies(url, no_proxy=None))


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by its name alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
