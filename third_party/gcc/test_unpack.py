import subprocess
from pathlib import Path

import pytest

from images.oci import rootfs_deb
from images.oci.rootfs_testing import deb, file, link
from images.oci.rootfs_tree import TreeError
from third_party.gcc import launcher, unpack


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and mode of what is below a folder; there may be no links."""
    found = [path for path in folder.rglob("*") if not path.is_dir()]
    assert not any(path.is_symlink() for path in found)
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o777) for path in found}


def test_links_become_what_they_lead_to(tmp_path: Path) -> None:
    first = deb(
        tmp_path,
        "dev",
        [
            file("usr/bin/x86-ld.bfd", b"ld", 0o755),
            link("usr/bin/ld", "x86-ld"),
            link("usr/bin/x86-ld", "x86-ld.bfd"),
            link("usr/lib/libz.so", "/lib/libz.so.1"),
            file("usr/lib/lto1", b"lto"),
        ],
    )
    second = deb(tmp_path, "run", [file("lib/libz.so.1.2", b"z"), link("lib/libz.so.1", "libz.so.1.2")])
    debs = [rootfs_deb.read(path) for path in (first, second)]
    unpack.unpack(debs, ["usr/bin/ld", "usr/lib/"], ["usr/lib/lto1"], tmp_path / "out")
    assert files(tmp_path / "out") == {"usr/bin/ld": (b"ld", 0o755), "usr/lib/libz.so": (b"z", 0o644)}


@pytest.mark.parametrize(
    ("target", "include", "exclude", "message"),
    [
        ("gone", ["usr/"], [], "/usr/lib/b: dev has no file there; expected one, or a link to one"),
        (".", ["usr/"], [], "/usr/lib/b: dev has no file there"),
        ("a", ["usr/", "lib/"], [], "no package has a path that begins with lib/"),
        ("a", ["usr/"], ["usr/bin/"], "no package has a path that begins with usr/bin/"),
    ],
)
def test_wants_that_are_not_met(
    tmp_path: Path, target: str, include: list[str], exclude: list[str], message: str
) -> None:
    made = rootfs_deb.read(deb(tmp_path, "dev", [file("usr/lib/a"), link("usr/lib/b", target)]))
    with pytest.raises(unpack.UnpackError, match=message):
        unpack.unpack([made], include, exclude, tmp_path / "out")


def test_two_that_disagree(tmp_path: Path) -> None:
    debs = [rootfs_deb.read(deb(tmp_path, name, [file("usr/a", name.encode())])) for name in ("one", "two")]
    with pytest.raises(TreeError, match="/usr/a: one and two install it with different content"):
        unpack.unpack(debs, ["usr/"], [], tmp_path / "out")


def test_a_script_runs_its_program_by_the_loader_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    loader = folder / "lib64/ld-linux-x86-64.so.2"
    for path in (loader, folder / "usr/bin/g++-12", folder / "usr/bin/as"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        path.chmod(0o755)
    launcher.write(folder, "usr/bin/g++-12", {"as": "usr/bin/as"})
    (tmp_path / "link").symlink_to(folder / "launch/as")
    libraries = f"{folder}/lib/x86_64-linux-gnu:{folder}/usr/lib/x86_64-linux-gnu"
    common = ["--inhibit-cache", "--library-path", libraries, "--argv0"]

    def printed(*command: Path | str) -> list[str]:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    assembler = str(folder / "usr/bin/as")
    assert printed(tmp_path / "link", "-o", "b c") == [*common, assembler, assembler, "-o", "b c"]
    driver = str(folder / "usr/bin/g++-12")
    options = [f"--sysroot={folder}", f"-B{folder}/launch/", f"-ffile-prefix-map={folder}="]
    assert printed(folder / "launch/g++", "-c") == [*common, driver, driver, *options, "-c"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(launcher.LauncherError, match=r"usr/bin/g\+\+: not in the folder"):
        launcher.write(tmp_path, "usr/bin/g++", {})
