"""The server's API key: where it comes from, and when there must be one. It is never part of a command."""

import ipaddress
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.launch.settings import Setting, Settings
from tools.cli.errors import UserError

VARIABLE = "VLLM_API_KEY"
# RFC 6750's b64token: no reader of env files takes any of it for a quote, a comment or a variable.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True)
class Key:
    """An API key in an env file, or (None) in the environment of whoever starts the server."""

    file: str | None


def find(settings: Settings, environment: Mapping[str, str]) -> Key | None:
    """Where the key comes from; None for a server without one, which then must be on a loopback address.

    Raises UserError for a file that cannot be used, for a key that no client could send, and for an address that is
    not loopback without a key.
    """
    setting = settings.of("key")
    if isinstance(setting.value, str):
        check_file(Path(setting.value))
        return Key(setting.value)
    if key := environment.get(VARIABLE):
        if not _TOKEN.fullmatch(key):
            raise UserError(f"{VARIABLE} (environment): expected letters, digits and -._~+/ alone, as bearer tokens")
        return Key(None)
    _need_loopback(settings.of("bind"), setting.knob.name)
    return None


def secret(key: Key | None, environment: Mapping[str, str]) -> str | None:
    """The key itself; None where there is none. Raises UserError where it is not where it should be, OSError."""
    if key is None:
        return None
    if key.file:
        path = Path(key.file)
        check_file(path)
        return path.read_text(encoding="utf-8").strip().partition("=")[2]
    if found := environment.get(VARIABLE):
        return found
    raise UserError(f"{VARIABLE} is not set: the server takes its API key from the environment: set it, run this again")


def check_file(path: Path) -> None:
    """Holds a key's file to one line VLLM_API_KEY=KEY that only its owner reads. Raises UserError, OSError."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: expected a file with the line {VARIABLE}=KEY")
    if mode & 0o077:
        raise UserError(f"{path}: others may read or write it (mode {mode & 0o777:o}): chmod 600 it")
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    name, _, key = lines[0].partition("=") if lines else ("", "", "")
    if len(lines) != 1 or name != VARIABLE or not _TOKEN.fullmatch(key):
        raise UserError(f"{path}: expected the one line {VARIABLE}=KEY, the key of letters, digits and -._~+/ alone")


def _need_loopback(bind: Setting, knob: str) -> None:
    address = str(bind.value)
    if not ipaddress.ip_address(address).is_loopback:
        raise UserError(
            f"{bind.knob.name}={address} ({bind.source}): whoever reaches this address could use the model: "
            f"set {knob} or {VARIABLE}, or bind to 127.0.0.1"
        )
