import os
from pathlib import Path

import pytest

from serving.preflight import access


@pytest.mark.parametrize(
    ("owner", "group", "mode", "may"),
    [
        (True, True, 0o600, True),
        (True, True, 0o066, False),
        (False, True, 0o060, True),
        (False, True, 0o606, False),
        (False, False, 0o006, True),
        (False, False, 0o660, False),
        (False, False, 0o004, False),
    ],
)
def test_first_of_owner_group_and_others_decides(
    owner: bool, group: bool, mode: int, may: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    status = path.stat()
    monkeypatch.setattr(access, "UID", status.st_uid + (not owner))
    monkeypatch.setattr(access, "GID", status.st_gid + (not group))
    assert access.may(path, access.READ | access.WRITE) == may


def test_file_with_an_access_control_list_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o000)
    assert not access.may(tmp_path / "file", access.READ)
    monkeypatch.setattr(os, "listxattr", lambda path: ["security.selinux", "system.posix_acl_access"])
    assert access.may(tmp_path / "file", access.READ)


def test_links_that_stay_and_links_that_leave(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    targets = {"in": "sub/a", "up": "../b", "root": "/etc/passwd", "round": "sub/../../folder/sub/a", "self": "self"}
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    (folder / "sub/b").symlink_to("../plain")
    (folder / "chain").symlink_to("up")
    found = {name: access.leaves(folder, name) for name in [*targets, "sub/b", "chain", "plain"]}
    assert found == {
        "in": None,
        "up": "../b",
        "root": "/etc/passwd",
        "round": "sub/../../folder/sub/a",
        "self": "self",
        "sub/b": None,
        "chain": "../b",
        "plain": None,
    }
