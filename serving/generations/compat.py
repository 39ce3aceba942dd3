"""Keeps an engine from reading KV blocks on disk that an engine of another format wrote.

vLLM 0.33.0 names the folders of its disk tier by the model's path in the container and by the cache's layout, not by
the formats of record and keys nor by its own version (v1/kv_offload/file_mapper.py), and takes whatever block has the
right name. By what this module refuses, all blocks in a folder are of the format of the generation that was served
with it last.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from serving.generations import kv, place, store
from serving.generations.generation import Generation, Image
from serving.generations.kv import Disk
from serving.launch.launch import Launch
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Writer:
    """A generation that was served, and its server's name."""

    server: str
    generation: Generation

    @property
    def label(self) -> str:
        """In words."""
        return f"generation {self.generation.number} of {self.server}"


def writers() -> list[Writer]:
    """The generations of all servers of this user that were served. Raises UserError for a state that is broken."""
    found = [(name, one) for name in place.names() for one in store.read(name).generations]
    return [Writer(name, one) for name, one in found if one.outcome == "served"]


def fit(
    launch: Launch, image: Image, name: str, number: int, before: Iterable[Writer], own: bool
) -> tuple[Launch, list[str]]:
    """A launch whose disk tiers hold no blocks of another format.

    Args:
        launch: what is to be served.
        image: of what.
        name: of the server.
        number: that the generation gets.
        before: who was served before.
        own: whether a tier with another's blocks is moved to a folder of its own. One that an earlier generation of
            the server and of the same format has is taken in any case.

    Returns the launch, which may have other folders, and a line for each that is another.

    Raises UserError for a tier with another's blocks where it is not moved.
    """
    notes = []
    known = sorted(before, key=lambda one: one.generation.at)
    wanted = kv.format_of(launch, image.base)
    for disk in kv.disks(launch):
        last = next((one for one in reversed(known) if _writes(one, disk)), None)
        if last is None or _empty(disk.host):
            continue
        differs = wanted.differs(_format(last))
        if not differs:
            continue
        root = _own_before(disk, name, known, wanted) or (f"{disk.root}-{name}-g{number}" if own else None)
        if root is None:
            raise UserError(
                f"{disk.host} has KV blocks of {last.label} ({', '.join(differs)}), which this one would misread:"
                " give it a folder of its own with --own-kv-dir, or choose another folder"
            )
        launch = replace(launch, arguments=kv.moved(launch, disk.root, root))
        notes.append(f"{disk.host} has KV blocks of {last.label} ({', '.join(differs)}); its own are in {root}")
    return launch, notes


def _format(writer: Writer) -> kv.Format:
    return kv.format_of(writer.generation.launch, writer.generation.image.base)


def _writes(writer: Writer, disk: Disk) -> bool:
    return any(_real(one.host) == _real(disk.host) for one in kv.disks(writer.generation.launch))


def _own_before(disk: Disk, name: str, known: list[Writer], wanted: kv.Format) -> str | None:
    """The folder beside the tier's that the server's last generation of the same format has for itself."""
    pattern = re.compile(rf"{re.escape(disk.host)}-{re.escape(name)}-g[0-9]+")
    for writer in reversed(known):
        if writer.server != name or wanted.differs(_format(writer)):
            continue
        for one in kv.disks(writer.generation.launch):
            if pattern.fullmatch(one.host):
                return disk.root + one.host.removeprefix(disk.host)
    return None


def _real(host: str) -> str:
    return os.path.realpath(host) if os.path.isabs(host) else host


def _empty(host: str) -> bool:
    """Whether a folder of the host surely has no blocks; a volume is not looked into."""
    if not os.path.isabs(host):
        return False
    try:
        with os.scandir(host) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return False
