"""What the files of a checkpoint's folder state: configuration, index, headers, identity."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.cli.errors import UserError
from tools.experts.checkpoint import headers, names
from tools.experts.checkpoint.headers import Tensor

INDEX = "model.safetensors.index.json"


class Stated:
    """What the files of a folder state."""

    def __init__(self, path: Path) -> None:
        digest = hashlib.sha256()
        raw = _read(path / "config.json", f"{path}: no config.json; expected the folder of a checkpoint")
        self.config = _object(path / "config.json", raw)
        text = self.config.get("text_config")
        self.text: dict[str, Any] = text if isinstance(text, dict) else self.config
        _feed(digest, "config.json", raw)
        self.matrices: dict[tuple[int, int, str], dict[str, Tensor]] = defaultdict(dict)
        self.names: dict[tuple[int, int, str], str] = {}
        self.drafter_from: int | None = None
        for name, tensor in self._tensors(path, digest).items():
            if (place := names.parse(name)) is not None:
                key = (self._layer(path, place), place.expert, place.matrix)
                if place.part in self.matrices[key]:
                    raise UserError(
                        f"{path}: two tensors for the {place.part} of layer {key[0]}, expert {key[1]}, {key[2]}, one of"
                        f" them {name}; expected the files of one model"
                    )
                self.matrices[key][place.part] = tensor
                if place.part == "weight":
                    self.names[key] = name
        for key in self.matrices:
            if key not in self.names:
                raise UserError(
                    f"{path}: layer {key[0]}, expert {key[1]}, {key[2]}: {listed(sorted(self.matrices[key]))} without"
                    " weight; the experts are of a format that is not read here, or incomplete"
                )
        self.identity = digest.hexdigest()

    def _layer(self, path: Path, place: names.Place) -> int:
        if not place.drafter:
            return place.layer
        count = self.text.get("num_hidden_layers")
        if type(count) is not int or count < 1:
            raise UserError(
                f"{path}: config.json says num_hidden_layers {count!r}; expected the number after which a drafter's"
                " layers count"
            )
        self.drafter_from = count
        return count + place.layer

    def _tensors(self, path: Path, digest: Any) -> dict[str, Tensor]:
        index = path / INDEX
        by_name: dict[str, Tensor] = {}
        shard_of: dict[str, str] | None = None
        if os.path.lexists(index):
            raw = _read(index, f"{index}: a link to nothing; fetch it again")
            _feed(digest, INDEX, raw)
            shard_of = _object(index, raw).get("weight_map")
            if not isinstance(shard_of, dict):
                raise UserError(f"{index}: no weight_map; fetch it again")
            for file in shard_of.values():
                if not isinstance(file, str) or not file.isprintable() or file in ("", "..") or Path(file).name != file:
                    raise UserError(f"{index}: names {file!r}; expected a file of its folder")
            files = sorted(set(shard_of.values()))
        else:
            files = sorted(file.name for file in path.glob("*.safetensors"))
        for file in files:
            raw, tensors = headers.read(path / file)
            _feed(digest, file, raw)
            for name, tensor in tensors.items():
                if shard_of is None and name in by_name:
                    raise UserError(f"{path / file}: {name} is in {by_name[name].path.name} too, and no index decides")
                if shard_of is None or shard_of.get(name) == file:
                    by_name[name] = tensor
        if shard_of is not None and (missing := sorted(set(shard_of) - set(by_name))):
            name = missing[0] if missing[0].isprintable() else repr(missing[0])
            raise UserError(f"{path / shard_of[missing[0]]}: has no {name}, which {INDEX} says is in it")
        return by_name


def _feed(digest: Any, name: str, raw: bytes) -> None:
    digest.update(f"{name}\0{len(raw)}\0".encode())
    digest.update(raw)


def _read(path: Path, otherwise: str) -> bytes:
    try:
        headers.regular(path)
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(otherwise) from None


def _object(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        found = headers.parsed(raw)
    except ValueError as error:
        raise UserError(f"{path}: no JSON ({error}); fetch it again") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object")
    return found


def listed(numbers: Sequence[object], most: int = 8) -> str:
    """Some of them for people: "1, 2 and 3 more"."""
    shown = ", ".join(str(one) for one in numbers[:most])
    return shown + (f" and {len(numbers) - most} more" if len(numbers) > most else "")
