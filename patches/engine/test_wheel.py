import hashlib
import zipfile
from pathlib import Path

import pytest

from patches.engine.errors import PatchError
from patches.engine.fake_wheel import make_wheel
from patches.engine.wheel import Wheel

FILES = {"demo/__init__.py": b"x = 1\n", "demo/sub/y.py": b"y\r\n"}


def rewrite(path: Path, changes: dict[str, bytes | None]) -> None:
    """Change members of a wheel without telling its RECORD; None drops one."""
    with zipfile.ZipFile(path) as archive:
        members: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | changes).items():
            if data is not None:
                archive.writestr(name, data)


def test_members_and_names(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES, "demo-1.0")
    with Wheel(path) as wheel:
        assert (wheel.project, wheel.version, wheel.file) == ("demo", "1.0", path.name)
        assert wheel.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert {name: wheel.read(name) for name in FILES} == FILES
        assert wheel.read("demo/z.py") is None


@pytest.mark.parametrize("path", ["other/x.py", "demo-1.0.dist-info/RECORD", "demo-1.0.data/scripts/x", "x.py"])
def test_only_its_own_packages_can_be_patched(tmp_path: Path, path: str) -> None:
    with Wheel(make_wheel(tmp_path, FILES)) as wheel, pytest.raises(PatchError, match="a patch changes only demo"):
        wheel.read(path)


def test_a_member_that_record_knows_otherwise(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    rewrite(path, {"demo/__init__.py": b"x = 2\n"})
    with Wheel(path) as wheel, pytest.raises(PatchError, match=r"demo/__init__.py is sha256=.*its RECORD says sha256="):
        wheel.read("demo/__init__.py")


def test_a_member_that_record_does_not_know(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    rewrite(path, {"demo/extra.py": b"x\n"})
    with Wheel(path) as wheel, pytest.raises(PatchError, match="its RECORD says nothing"):
        wheel.read("demo/extra.py")


def test_a_damaged_member(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    path.write_bytes(path.read_bytes().replace(b"x = 1\n", b"x = 9\n"))
    with Wheel(path) as wheel, pytest.raises(PatchError, match=r"demo/__init__.py is damaged"):
        wheel.read("demo/__init__.py")


def test_a_damaged_compressed_member(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        start = archive.getinfo("demo/__init__.py").header_offset + 30 + len("demo/__init__.py")
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + b"\xff\xff\xff" + whole[start + 3 :])
    with Wheel(path) as wheel, pytest.raises(PatchError, match=r"demo/__init__.py is damaged"):
        wheel.read("demo/__init__.py")


def test_no_wheel_at_all(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no such wheel: give the pinned wheel's file"):
        Wheel(tmp_path / "none.whl")
    (tmp_path / "text.whl").write_text("hello")
    with pytest.raises(PatchError, match="cannot be read as a wheel"):
        Wheel(tmp_path / "text.whl")


def test_a_zip_that_is_no_wheel(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    rewrite(path, {"demo-1.0.dist-info/RECORD": None})
    with pytest.raises(PatchError, match=r"expected one .dist-info folder with a RECORD"):
        Wheel(path)
