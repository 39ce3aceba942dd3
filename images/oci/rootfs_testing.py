"""Small Debian packages for tests."""

import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

from images.oci.rootfs_deb import Member

_TYPES = {
    "c": tarfile.CHRTYPE,
    "d": tarfile.DIRTYPE,
    "f": tarfile.REGTYPE,
    "h": tarfile.LNKTYPE,
    "l": tarfile.SYMTYPE,
}


def directory(path: str, mode: int = 0o755) -> Member:
    """Returns a directory."""
    return Member(path, "d", mode, 0, 0)


def file(path: str, data: bytes = b"", mode: int = 0o644) -> Member:
    """Returns a regular file."""
    return Member(path, "f", mode, 0, 0, data=data)


def link(path: str, target: str) -> Member:
    """Returns a symbolic link."""
    return Member(path, "l", 0o777, 0, 0, target)


def hardlink(path: str, target: str) -> Member:
    """Returns a hard link."""
    return Member(path, "h", 0o644, 0, 0, target)


def tar(members: Iterable[Member], mode: str) -> bytes:
    """Returns a tar archive of the members, their paths with a leading `./`; mode is w:, w:gz or w:xz."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for member in members:
            info = tarfile.TarInfo("./" + member.path)
            info.type, info.mode, info.uid, info.gid = _TYPES[member.kind], member.mode, member.uid, member.gid
            info.linkname = "./" + member.target if member.kind == "h" else member.target
            info.size = len(member.data)
            archive.addfile(info, io.BytesIO(member.data))
    return out.getvalue()


def ar(parts: dict[str, bytes]) -> bytes:
    """Returns an ar archive."""
    out = b"!<arch>\n"
    for name, data in parts.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out


def deb(folder: Path, name: str, members: Iterable[Member], control: str = "", compression: str = "xz") -> Path:
    """Writes NAME_1.0_amd64.deb with these members, further control fields, and the checksums of its files."""
    members = list(members)
    text = f"Package: {name}\nVersion: 1.0\nArchitecture: amd64\n{control}Description: for tests\n more of it\n"
    sums = "".join(f"{hashlib.md5(m.data).hexdigest()}  {m.path}\n" for m in members if m.kind == "f")
    data = [file("control", text.encode()), file("md5sums", sums.encode())]
    path = folder / f"{name}_1.0_amd64.deb"
    path.write_bytes(ar({
        "debian-binary": b"2.0\n",
        f"control.tar.{compression}": tar(data, f"w:{compression}"),
        f"data.tar.{compression}": tar(members, f"w:{compression}"),
    }))
    return path
