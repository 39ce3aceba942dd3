"""The sidecar, the trailer of the file of records, and the draft's journal, as bytes: docs/format-store.md."""

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.experts.storage.header import CHECKSUM, SCHEMA, TRAILER_BYTES, VERSION, Header, Key
from serving.experts.storage.refusal import StorageError

SIDECAR = "experts.json"
RECORDS = re.compile(r"records-[0-9a-f]{16}\.bin")

_TRAILER = struct.Struct("<16sIIQQQ32s")
_MAGIC = b"moet-experts-rec"
_ENTRY = struct.Struct("<IIQI")
_SUMMED = struct.Struct("<IIQ")
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("experts", "slot_bytes", "stride"), ((int,), "a whole number")),
    **dict.fromkeys(("kind", "tag", "checkpoint"), ((str,), "a text")),
    "layers": ((list,), "a list of numbers"),
    "zero_mode": ((str, type(None)), "a text or null"),
    "quantizer_abi": ((int, type(None)), "a whole number or null"),
    "extra": ((dict,), "facts by name"),
    "records": ((dict,), "lists of checksums by layer"),
}


@dataclass(frozen=True)
class Sidecar:
    """A sidecar that was read.

    Attributes:
        header: what the container holds.
        checksums: CRC-64/NVME of each record that is present, by (layer, expert).
        content: SHA-256 of the sidecar's bytes, 64 hex digits: the content id.
    """

    header: Header
    checksums: Mapping[Key, int]
    content: str

    @property
    def records(self) -> str:
        """Name of the file of records."""
        return records_name(self.content)


def records_name(content: str) -> str:
    """Name of the file of records of a content id."""
    return f"records-{content[:16]}.bin"


def content_of(sidecar: bytes) -> str:
    """Content id of a sidecar's bytes."""
    return hashlib.sha256(sidecar).hexdigest()


def write(header: Header, checksums: Mapping[Key, int]) -> bytes:
    """A sidecar's bytes: a line a fact, a line a layer; absent records are null. The same content, the same bytes."""
    lines = [f" {json.dumps(name)}: {json.dumps(value, sort_keys=True)}," for name, value in header.document().items()]
    layers = []
    for layer in header.layers:
        sums = [checksums.get((layer, expert)) for expert in range(header.experts)]
        layers.append(f'  "{layer}": ' + json.dumps([None if one is None else f"{one:016x}" for one in sums]))
    return ("{\n" + "\n".join(lines) + '\n "records": {\n' + ",\n".join(layers) + "\n }\n}\n").encode()


def read(data: bytes, where: str) -> Sidecar:
    """Reads a sidecar; `where` names it in refusals. Raises StorageError."""
    again = "restore it with its file of records from one copy, or write the container again"
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise StorageError(f"{where}: is no JSON document ({why}): it was damaged; {again}") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise StorageError(f"{where}: has no schema {SCHEMA!r}; expected the sidecar of a container of experts")
    if found.get("version") != VERSION:
        raise StorageError(
            f"{where}: version {found.get('version')!r} of the format; this program reads version {VERSION}: "
            "use the release that wrote it, or write the container again"
        )
    try:
        header = _header(found)
        checksums = _checksums(header, found["records"])
    except (KeyError, TypeError, ValueError, StorageError) as error:
        word = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StorageError(f"{where}: {word}: it was damaged; {again}") from None
    return Sidecar(header, checksums, content_of(data))


def trailer(header: Header, content: str) -> bytes:
    """The last 4096 bytes of the file of records."""
    body = _TRAILER.pack(
        _MAGIC, VERSION, header.experts, header.layers[-1] + 1, header.slot_bytes, header.step, bytes.fromhex(content)
    )
    return (body + struct.pack("<I", zlib.crc32(body))).ljust(TRAILER_BYTES, b"\0")


def content_of_trailer(end: bytes) -> str:
    """The content id that a trailer names, or "" where the bytes are no trailer."""
    body, check = end[: _TRAILER.size], end[_TRAILER.size : _TRAILER.size + 4]
    if len(end) != TRAILER_BYTES or not body.startswith(_MAGIC) or check != struct.pack("<I", zlib.crc32(body)):
        return ""
    return body[-32:].hex()


def journal_entry(key: Key, checksum: int) -> bytes:
    """A line of the journal: a record that is safe on disk."""
    body = _SUMMED.pack(*key, checksum)
    return body + struct.pack("<I", zlib.crc32(body))


def journal(data: bytes, header: Header) -> tuple[dict[Key, int], int]:
    """The records of a journal, and how many of its bytes hold; what a killed writer left half-written ends it."""
    found: dict[Key, int] = {}
    end = 0
    layers = set(header.layers)
    while end + _ENTRY.size <= len(data):
        layer, expert, checksum, check = _ENTRY.unpack_from(data, end)
        if check != zlib.crc32(data[end : end + _SUMMED.size]) or layer not in layers or expert >= header.experts:
            break
        found[layer, expert] = checksum
        end += _ENTRY.size
    return found, end


def _header(found: Mapping[str, Any]) -> Header:
    if found["checksum"] != CHECKSUM:
        raise StorageError(f"checksum: {found['checksum']!r}; expected {CHECKSUM!r}")
    for name, (types, expected) in _TYPES.items():
        if type(found[name]) not in types:
            raise StorageError(f"{name}: {found[name]!r}; expected {expected}")
    if any(type(layer) is not int for layer in found["layers"]):
        raise StorageError(f"layers: {found['layers']!r}; expected whole numbers")
    return Header(
        kind=found["kind"],
        tag=found["tag"],
        layers=tuple(found["layers"]),
        experts=found["experts"],
        slot_bytes=found["slot_bytes"],
        checkpoint=found["checkpoint"],
        stride=found["stride"],
        zero_mode=found["zero_mode"],
        quantizer_abi=found["quantizer_abi"],
        extra=found["extra"],
    )


def _checksums(header: Header, records: Mapping[str, Any]) -> dict[Key, int]:
    if set(records) != {str(layer) for layer in header.layers}:
        raise StorageError("records: not the layers that the header names")
    found: dict[Key, int] = {}
    for layer in header.layers:
        sums = records[str(layer)]
        if not isinstance(sums, list) or len(sums) != header.experts:
            raise StorageError(f"records of layer {layer}: expected a list of {header.experts} checksums")
        for expert, one in enumerate(sums):
            if one is None:
                continue
            if not re.fullmatch(r"[0-9a-f]{16}", one):
                raise StorageError(f"checksum of layer {layer}, expert {expert}: {one!r}; expected 16 hex digits")
            found[layer, expert] = int(one, 16)
    return found
