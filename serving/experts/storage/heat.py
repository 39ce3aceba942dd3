"""The heat file: which records were used how often, so that the next server starts with the hottest."""

import json
from collections.abc import Mapping
from pathlib import Path

from serving.experts.storage.header import Header, Key
from serving.experts.storage.places import Folder
from serving.experts.storage.refusal import StorageError

SCHEMA = "moet.expert-heat"
VERSION = 1


def save(path: Path, header: Header, heat: Mapping[Key, float]) -> None:
    """Writes the file in one stroke, hottest first; it names the checkpoint. Raises StorageError; the old one stays."""
    hottest = sorted(heat.items(), key=lambda item: (-item[1], item[0]))
    rows = ",\n".join(f"  [{layer}, {expert}, {count:.6g}]" for (layer, expert), count in hottest if count > 0)
    text = (
        f'{{\n "schema": "{SCHEMA}",\n "version": {VERSION},\n "checkpoint": "{header.checkpoint}",\n'
        f' "heat": [\n{rows}\n ]\n}}\n'
    )
    with Folder(path.parent, make=True) as folder:
        folder.replace(path.name, text.encode())


def load(path: Path, header: Header) -> tuple[dict[Key, float], str]:
    """The heat that a file holds, and "" or why it is not used: it is a hint, and a server starts without it.

    Records that the container has not are left out.
    """
    try:
        with Folder(path.parent) as folder:
            found = json.loads(folder.load(path.name))
        if found["schema"] != SCHEMA or found["version"] != VERSION:
            return {}, f"{path}: is no heat file of version {VERSION}"
        if found["checkpoint"] != header.checkpoint:
            return {}, f"{path}: is of another model (checkpoint {found['checkpoint']!r})"
        heat: dict[Key, float] = {}
        for layer, expert, count in found["heat"]:
            if layer in header.layers and 0 <= expert < header.experts and 0 < float(count) < float("inf"):
                heat[int(layer), int(expert)] = float(count)
    except FileNotFoundError:
        return {}, ""
    except StorageError as error:
        return {}, str(error)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return {}, f"{path}: cannot be read as a heat file ({error})"
    return heat, ""
