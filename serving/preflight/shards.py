"""The checkpoint's shards: those that its index names, whole, readable, and with the tensors that they should have."""

import os
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from serving.preflight import access, documents, model_folder, safetensors
from serving.preflight.documents import DocumentError
from serving.preflight.host import Host
from serving.preflight.result import Result, finding, gib, hint, ok, skipped, some
from serving.preflight.subject import Subject

INDEX = "model.safetensors.index.json"

_SUFFIX = ".safetensors"


@dataclass
class _Faults:
    """Shards by what is wrong with them; each a name, or a name and more words."""

    misnamed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    short_of: dict[str, str] = field(default_factory=dict)


def check(subject: Subject, _host: Host) -> list[Result]:
    """Whether every shard of the index is there, as long as its own header says, and readable in the container."""
    folder = subject.model
    if not folder.is_dir():
        return [skipped("shards", f"there is no folder {folder}")]
    try:
        index = _index(folder)
    except OSError as error:
        what = f"{folder / INDEX}: {error.strerror}"
        return [finding("shards", what, "it says which shards there must be", model_folder.download(folder))]
    except DocumentError as error:
        again = f"rm {shlex.quote(str(folder / INDEX))} && {model_folder.download(folder)}"
        return [finding("shards", f"{folder / INDEX} {error}", "it says which shards there must be", again)]
    faults, size = _Faults(), 0
    for name, tensors in sorted(index.items()):
        size += _shard(folder, name, tensors, faults)
    found = _findings(folder, faults)
    if not found:
        count = sum(len(tensors) for tensors in index.values())
        found = [ok("shards", f"{len(index):,} of {len(index):,}, {gib(size)}, {count:,} tensors")]
    return [*found, *_strays(folder, index)]


def _index(folder: Path) -> dict[str, set[str]]:
    """Each shard that the index names, and the tensors that it must have."""
    if (target := access.leaves(folder, INDEX)) is not None:
        raise DocumentError(f"is a link to {target}, outside of the folder")
    whole = documents.read(folder / INDEX).get("weight_map")
    if not isinstance(whole, dict) or not whole:
        raise DocumentError("has no weight_map of tensor to shard")
    found: dict[str, set[str]] = defaultdict(set)
    for tensor, shard in whole.items():
        if not isinstance(shard, str):
            raise DocumentError(f"weight_map: {tensor}: expected a file's name, found {shard!r}")
        found[shard].add(tensor)
    return dict(found)


def _shard(folder: Path, name: str, tensors: set[str], faults: _Faults) -> int:
    """Looks at a shard; its size in bytes where it is whole."""
    if not _is_name(name):
        faults.misnamed.append(repr(name))
        return 0
    path = folder / name
    try:
        if (target := access.leaves(folder, name)) is not None:
            faults.linked.append(f"{name} to {target}")
            return 0
        found = safetensors.read(path)
        if not access.may(path, access.READ):
            faults.closed.append(name)
    except FileNotFoundError:
        faults.missing.append(name)
        return 0
    except PermissionError:
        faults.closed.append(name)
        return 0
    except OSError as error:
        faults.damaged[name] = f"cannot be read: {error.strerror}"
        return 0
    except (safetensors.TruncatedError, DocumentError) as error:
        faults.damaged[name] = str(error)
        return 0
    if found.size != found.expected:
        faults.damaged[name] = f"has {found.size:,} bytes, expected {found.expected:,}"
        return 0
    if lost := sorted(tensors - found.tensors):
        faults.short_of[name] = f"lacks {some(lost, 2)}"
        return 0
    return found.size


def _is_name(name: str) -> bool:
    """Whether it can be a shard's: vLLM takes shards from the folder itself alone."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return "/" not in name and "\0" not in name and name.endswith(_SUFFIX)


def _findings(folder: Path, faults: _Faults) -> list[Result]:
    found = []
    if faults.misnamed:
        what = f"{INDEX} names {some(faults.misnamed)}: expected names of {_SUFFIX} files in the folder"
        again = f"rm {shlex.quote(str(folder / INDEX))} && {model_folder.download(folder)}"
        found.append(finding("shards", what, "vLLM refuses to load such a checkpoint", again))
    if faults.missing:
        what = f"{len(faults.missing):,} missing: {some(faults.missing)}"
        found.append(finding("shards", what, "the checkpoint is not whole", model_folder.download(folder)))
    if faults.linked:
        what = f"{len(faults.linked):,} are links that lead out of the folder: {some(faults.linked, 2)}"
        found.append(model_folder.unseen("shards", folder, what))
    for faulty, why in (
        (faults.damaged, "a download that was cut short, or damaged since: vLLM fails to load it, after minutes"),
        (faults.short_of, "index and shards are of two versions of the checkpoint"),
    ):
        if faulty:
            files = " ".join(shlex.quote(str(folder / name)) for name in list(faulty)[:5])
            what = some([f"{name} {words}" for name, words in faulty.items()])
            found.append(finding("shards", what, why, f"rm {files} && {model_folder.download(folder)}"))
    if faults.closed:
        what = f"{len(faults.closed):,} cannot be read by user {access.UID}: {some(faults.closed)}"
        found.append(model_folder.unreadable("shards", folder, what))
    return found


def _strays(folder: Path, index: dict[str, set[str]]) -> list[Result]:
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(_SUFFIX) and path.name not in index)
    if not names:
        return []
    what = f"{len(names):,} that {INDEX} does not name: {some(names)}"
    files = " ".join(shlex.quote(str(folder / name)) for name in names[:5])
    return [hint("shards", what, "vLLM passes them over; they may be of another version", f"rm {files}")]
