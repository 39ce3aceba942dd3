import zipfile
from pathlib import Path

import pytest

from third_party.cuda import unpack


def wheel(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name.replace("__", "/"))
            info.external_attr = (0o755 if b"#!" in data else 0o644) << 16
            archive.writestr(info, data)
    return path


def test_wanted_members_of_several(tmp_path: Path) -> None:
    first = wheel(tmp_path / "a.whl", cu__bin__nvcc=b"#!", cu__lib__cmake__x=b"", dist__info=b"")
    second = wheel(tmp_path / "b.whl", cu__bin__ptxas=b"#! ")
    unpack.unpack([first, second], ["cu/"], ["cu/lib/cmake/"], tmp_path / "out")
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()) == [
        "cu/bin/nvcc",
        "cu/bin/ptxas",
    ]
    assert (tmp_path / "out/cu/bin/nvcc").stat().st_mode & 0o777 == 0o755


def test_two_that_disagree(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path / f"{n}.whl", cu__version=n.encode()) for n in "ab"]
    with pytest.raises(unpack.UnpackError, match=r"cu/version: a\.whl and b\.whl bring different files"):
        unpack.unpack(wheels, ["cu/"], [], tmp_path / "out")


def test_a_prefix_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(unpack.UnpackError, match="no wheel has a member that begins with cu/nvvm/"):
        unpack.unpack([wheel(tmp_path / "a.whl", cu__bin=b"")], ["cu/bin", "cu/nvvm/"], [], tmp_path / "out")


@pytest.mark.parametrize("name", ["cu/../../x", "/etc/x"])
def test_a_member_that_would_leave(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr(name, b"")
    with pytest.raises(unpack.UnpackError, match="would leave the folder"):
        unpack.unpack([tmp_path / "a.whl"], [""], [], tmp_path / "out")
    assert not (tmp_path / "x").exists()
