"""Small wheels and layers for tests."""

import base64
import hashlib
import zipfile
from pathlib import Path

from images.oci import assemble, layer

MTIME = 1767225600


def record_row(path: str, data: bytes) -> str:
    """Returns the RECORD row of a file."""
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{path},sha256={value},{len(data)}"


def wheel(folder: Path, name: str, files: dict[str, bytes], scripts: dict[str, str] | None = None) -> Path:
    """Writes `name`-1.0-py3-none-any.whl with these files (paths as in the wheel) and console scripts."""
    info = f"{name}-1.0.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}".encode()
    members[f"{info}/RECORD"] = "\n".join([
        *(record_row(path, data) for path, data in members.items()),
        f"{info}/RECORD,,",
    ]).encode()
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as out:
        for member, data in members.items():
            out.writestr(member, data)
    return path


def part(folder: Path, name: str, files: dict[str, bytes], owner: str) -> assemble.Part:
    """Writes a layer of these files, all of one owner, with its descriptor and listing."""
    prefix = folder / name
    out = layer.LayerWriter(Path(f"{prefix}.tar.gz"), MTIME)
    out.owner = owner
    for path, data in files.items():
        out.file(path, data)
    layer.write_descriptor(out.close(name), Path(f"{prefix}.json"))
    layer.write_listing(out.entries, Path(f"{prefix}.files.json"))
    return assemble.read_part(str(prefix))
