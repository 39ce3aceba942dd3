"""A small wheel for tests, with a RECORD that is right."""

import base64
import hashlib
import zipfile
from pathlib import Path


def make_wheel(folder: Path, files: dict[str, bytes], name: str = "demo-1.0") -> Path:
    """Write `<name>-py3-none-any.whl` with these files into `folder`. Returns its path."""
    info = f"{name}.dist-info"
    project, _, version = name.partition("-")
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    record = "\n".join([*rows, f"{info}/RECORD,,", ""])
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(member), data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
