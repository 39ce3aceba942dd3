"""Small containers for tests."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from serving.experts.storage.backend import Backend
from serving.experts.storage.buffers import aligned
from serving.experts.storage.header import Header, Key
from serving.experts.storage.writer import Writer

CHECKPOINT = "5e" * 32
SLOT = 10_001


def header(**changes: Any) -> Header:
    """A header of two layers, 2 and 4, of three experts each; records of 10,001 bytes, 12,288 apart."""
    values: dict[str, Any] = {
        "kind": "w2-pack",
        "tag": "made up",
        "layers": (2, 4),
        "experts": 3,
        "slot_bytes": SLOT,
        "checkpoint": CHECKPOINT,
        "zero_mode": "auto",
        "quantizer_abi": 1,
        "extra": {"hidden": 64},
    }
    return Header(**(values | changes))


# What the tests of the back ends read.
TWO_LAYERS = header(layers=(1, 3), experts=10)


def records(of: Header, seed: int = 0) -> dict[Key, bytes]:
    """Random records, the same for the same seed."""
    keys = [(layer, expert) for layer in of.layers for expert in range(of.experts)]
    return {key: random.Random(f"{seed} {key}").randbytes(of.slot_bytes) for key in keys}


def write(
    path: Path,
    of: Header | None = None,
    data: Mapping[Key, bytes] | None = None,
    after: Callable[[Key], None] = lambda _: None,
    **options: Any,
) -> str:
    """Writes a container, or goes on with one, and returns its content id; `after` is called after each record."""
    of = of or header()
    data = records(of) if data is None else data
    with Writer.open(path, of, **options) as writer:
        for key in writer.missing():
            if key in data:
                writer.put(*key, data[key])
                after(key)
        return writer.commit(absent=len(data) < of.total)


def files(path: Path) -> dict[str, bytes]:
    """The files of a folder but the lock."""
    return {one.name: one.read_bytes() for one in path.iterdir() if one.name != "writer.lock"}


def read(backend: Backend, keys: Sequence[Key]) -> list[bytes]:
    """Records through a back end, into aligned buffers."""
    of = backend.container.header
    room = [aligned(of.read_bytes) for _ in keys]
    backend.read(keys, room)
    return [bytes(one[: of.slot_bytes]) for one in room]


def data_file(path: Path) -> Path:
    """The file of a container's records."""
    return next(path.glob("records-*.bin"))


def flip(path: Path, at: int) -> None:
    """Turns one bit of byte `at`."""
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 0x10]))
