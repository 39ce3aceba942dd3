"""Who one is to a registry: the files that docker, podman and skopeo login write."""

import base64
import binascii
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.registry.errors import RegistryError


@dataclass(frozen=True)
class Credentials:
    """A user's name and secret, or an identity `token` that an authorization server takes in their place."""

    user: str
    secret: str
    token: str | None = None

    @property
    def basic(self) -> str:
        """The header Authorization that carries them."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()


def find(address: str, name: str, authfile: Path | None = None) -> Credentials | None:
    """The credentials for the repository `name` at `address` (HOST[:PORT]), the most specific ones of the first file.

    Looks into `authfile` alone where it is given, else where podman, skopeo and docker keep theirs.
    Raises RegistryError where a file is broken, or `authfile` is missing.
    """
    if authfile is not None and not authfile.is_file():
        raise RegistryError(f"{authfile}: no such file; skopeo login --authfile {authfile} {address} writes it")
    for path in [authfile] if authfile else _files():
        if path.is_file() and (found := _look_up(path, address, name)):
            return found
    return None


def _files() -> Iterator[Path]:
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    home = Path(os.environ.get("HOME", "/nonexistent"))
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    yield Path(runtime, "containers/auth.json")
    # Without a session, podman as root writes here.
    yield Path(f"/run/containers/{os.getuid()}/auth.json")
    yield Path(os.environ.get("XDG_CONFIG_HOME", home / ".config"), "containers/auth.json")
    yield Path(os.environ.get("DOCKER_CONFIG", home / ".docker"), "config.json")


def _look_up(path: Path, address: str, name: str) -> Credentials | None:
    try:
        document = json.loads(path.read_bytes())
        auths: dict[str, Any] = {_plain(key): entry for key, entry in document.get("auths", {}).items()}
        helpers: dict[str, str] = document.get("credHelpers", {})
        parts = f"{address}/{name}".split("/")
        for length in range(len(parts), 0, -1):
            key = "/".join(parts[:length])
            if key in helpers:
                return _ask(helpers[key], address)
            if key in auths and (found := _decode(auths[key])):
                return found
        return _ask(document["credsStore"], address) if document.get("credsStore") else None
    except (OSError, ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise RegistryError(f"{path}: cannot be read as a file of credentials ({error}); log in again") from None


def _plain(key: str) -> str:
    return key.partition("://")[2].partition("/")[0] if "://" in key else key


def _decode(entry: dict[str, str]) -> Credentials | None:
    user, secret, token = entry.get("username", ""), entry.get("password", ""), entry.get("identitytoken")
    if text := entry.get("auth"):
        user, _, secret = base64.b64decode(text, validate=True).decode().rstrip("\0").partition(":")
    return Credentials(user, secret, token or None) if user or token else None


def _ask(helper: str, address: str) -> Credentials | None:
    from docker.credentials import CredentialsNotFound, Store, StoreError

    try:
        answer = Store(helper).get(address)  # type: ignore[no-untyped-call]
    except CredentialsNotFound:
        return None
    except StoreError as error:
        raise RegistryError(f"{address}: docker-credential-{helper} gave no credentials ({error})") from None
    if answer["Username"] == "<token>":
        return Credentials("", "", answer["Secret"])
    return Credentials(answer["Username"], answer["Secret"])
