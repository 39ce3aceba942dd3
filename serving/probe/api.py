"""Where one running server is asked, and with what."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from serving.launch.launch import Launch

_SERVED = "--served-model-name"


@dataclass(frozen=True)
class Api:
    """A server's API.

    Attributes:
        base_url: scheme, host and port, without a slash at the end.
        model: the name that requests give it; "" for the server's own, which vLLM 0.33.0 takes where none is given
            (entrypoints/serve/engine/serving.py:86).
        key: the API key; None for a server that needs none.
    """

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, launch: Launch, key: str | None) -> Self:
        """The API of a launch, as its host reaches it; `key` is what its `launch.key` stands for."""
        return cls(base_url(launch.bind, launch.port), _served(launch.arguments), key)


def base_url(bind: str, port: int) -> str:
    """The URL at which this host reaches what is bound to an address of it, which may be that of all its addresses."""
    address = ipaddress.ip_address(bind)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"


def _served(arguments: Sequence[str]) -> str:
    """The model's name in the API: of several flags the last counts; without one it is the model's path."""
    named = [word.partition("=")[2] for word in arguments if word.startswith(f"{_SERVED}=")]
    return named[-1] if named else arguments[1]
