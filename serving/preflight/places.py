"""Folders and volumes that the server writes to."""

import shlex
from pathlib import Path

from serving.launch.launch import Bind
from serving.preflight import access
from serving.preflight.host import Docker, Host
from serving.preflight.result import Result, finding, gib, ok, skipped
from serving.preflight.subject import Subject

# Floors below which no server should start, and no measurement of what one writes.
_BYTES = 10 * 2**30
_INODES = 100_000


def check(subject: Subject, host: Host, engine: Docker | None) -> list[Result]:
    """Whether each place is there, takes files of the container's user, and has room.

    A KV tier must hold more than the host memory above it, whose blocks it takes; all others _BYTES.
    """
    found = []
    for bind in subject.launch.binds:
        if not bind.write:
            continue
        knob = next(one.knob for one in subject.settings.by_name.values() if _is_of(one.knob.mount, bind))
        tier = subject.offload_gib * 2**30 if subject.knob("offload") in knob.needs else 0
        found.append(_place(knob.name, bind, max(_BYTES, tier), host, engine))
    return found


def _is_of(mount: object, bind: Bind) -> bool:
    return getattr(mount, "target", None) == bind.target


def _place(knob: str, bind: Bind, needed: float, host: Host, engine: Docker | None) -> Result:
    if not bind.is_volume:
        return _folder(knob, Path(bind.source), needed, host)
    root = engine.info.get("DockerRootDir") if engine else None
    if not isinstance(root, str) or not Path(root).is_dir():
        return skipped(knob, f"{bind.source} is a volume, and the engine's folder for volumes is not seen from here")
    return _room(knob, f"the volume {bind.source}, below {root},", Path(root), needed, host)


def _folder(knob: str, folder: Path, needed: float, host: Host) -> Result:
    quoted = shlex.quote(str(folder))
    make = f"install -d -o {access.UID} -g {access.GID} {quoted}"
    if not folder.exists():
        return finding(knob, f"{folder} does not exist", "Docker mounts only what is there", make)
    if not folder.is_dir():
        return finding(knob, f"{folder} is no folder", "the server writes files into it", f"--set {knob}=FOLDER")
    if not access.may(folder, access.READ | access.WRITE | access.ENTER):
        why = f"the server runs as user {access.UID} and has to write to it"
        return finding(knob, f"{folder} cannot be written to by user {access.UID}", why, make)
    return _room(knob, str(folder), folder, needed, host)


def _room(knob: str, name: str, path: Path, needed: float, host: Host) -> Result:
    try:
        found = host.space(path)
    except OSError as error:
        return skipped(knob, f"{path}: {error.strerror}")
    elsewhere = f"df -h -i {shlex.quote(str(path))}; free some there, or --set {knob}=FOLDER on another disk"
    if found.read_only:
        mend = f"mount -o remount,rw $(findmnt -no TARGET -T {shlex.quote(str(path))})"
        return finding(knob, f"{name} is on a file system mounted read-only", "the server writes files into it", mend)
    if found.free < needed:
        what = f"{name} has {gib(found.free)} free; at least {gib(needed)} are needed"
        return finding(knob, what, "a full disk ends the server's start, or cuts files short", elsewhere)
    if found.inodes is not None and found.inodes < _INODES:
        what = f"{name} has {found.inodes:,} free inodes; at least {_INODES:,} are needed"
        return finding(knob, what, "caches are many small files: the disk is full without one", elsewhere)
    inodes = "" if found.inodes is None else f", {found.inodes:,} free inodes"
    return ok(knob, f"{name} has {gib(found.free)} free{inodes}")
