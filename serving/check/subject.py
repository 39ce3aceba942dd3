"""What all checks are given."""

from dataclasses import dataclass

from serving.check.client import Client
from serving.check.published import Line
from serving.check.talk import Model
from serving.check.target import Target
from serving.preflight.host import Host


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        answer: tokens of each answer whose decoding is timed.
        prompt: tokens of each prompt that is timed.
        streams: how many at once, beside one alone.
        needles: tokens of the texts that something is to be found in.
    """

    answer: int = 512
    prompt: int = 16384
    streams: int = 8
    needles: tuple[int, ...] = (30000, 100000)


@dataclass(frozen=True)
class Subject:
    """A server under check.

    Attributes:
        target: the server.
        client: to ask it.
        model: what it serves.
        line: what others published of its line; None where nothing is known.
        host: where its cards are looked at; None where it runs elsewhere.
        sizes: how much is measured.
    """

    target: Target
    client: Client
    model: Model
    line: Line | None
    host: Host | None
    sizes: Sizes
