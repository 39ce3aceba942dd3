"""The real compiler: complete in itself, none of the host's files are read, and it is the one that is pinned."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from third_party.debian import lockfile
from third_party.gcc import identity

# A sandbox has links to the files of the tree, and the compiler says where these really are.
TREE = Path(os.environ["TREE"], "launch/g++").resolve().parents[1]
LOADER = TREE / "lib64/ld-linux-x86-64.so.2"
LIBRARIES = f"{TREE}/lib/x86_64-linux-gnu:{TREE}/usr/lib/x86_64-linux-gnu"
PROGRAM = """
#include <cassert>
#include <iostream>
#include <ranges>
#include <span>
#include <thread>
#include <linux/version.h>
extern "C" int run(int n) {
    assert(n > 0);
    static int values[] = {LINUX_VERSION_CODE, 2};
    std::jthread([&] { for (int i : std::views::iota(0, n)) std::cout << std::span(values)[i]; }).join();
    return values[0];
}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "a.cpp").write_text(PROGRAM)
    # The tree's scripts call readlink; there is nothing else to be found.
    (tmp_path / "bin").mkdir()
    readlink = shutil.which("readlink")
    assert readlink
    (tmp_path / "bin/readlink").symlink_to(readlink)
    return tmp_path


def gxx(work: Path, *arguments: str, tree: Path = TREE) -> str:
    """Runs the compiler in `work` with next to no environment; returns stdout and stderr."""
    command = [str(tree / "launch/g++"), "-std=c++20", *arguments]
    done = subprocess.run(command, cwd=work, env={"PATH": f"{work}/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def inside(paths: set[str]) -> bool:
    """Whether there are paths, and all lead into the tree."""
    return bool(paths) and all(Path(path).resolve().is_relative_to(TREE) for path in paths)


def test_it_is_the_pinned_one(work: Path) -> None:
    gxx(work, "-c", "a.cpp", "-o", "a.o")
    lock = lockfile.read(Path("third_party/debian/bookworm.lock.bzl"))
    assert identity.comments(work / "a.o") == [identity.pinned(lock)]


def test_programs_are_of_the_tree(work: Path) -> None:
    told = gxx(work, "-###", "-shared", "a.cpp")
    programs = set(re.findall(r"^ (\S+)", told, re.MULTILINE))
    assert {Path(path).name for path in programs} == {"as", "cc1plus", "collect2"}
    assert inside(programs | {gxx(work, "-print-prog-name=ld").strip()})


@pytest.mark.parametrize("name", ["as", "cc1plus", "collect2", "g++", "ld"])
def test_libraries_of_programs_are_of_the_tree(name: str) -> None:
    program = re.findall(r'"\$root/(usr/[^"]+)"', (TREE / "launch" / name).read_text())[-1]
    command = [LOADER, "--inhibit-cache", "--library-path", LIBRARIES, "--list", TREE / program]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env={}).stdout
    assert "not found" not in told
    assert inside(set(re.findall(r"=> (/\S+)", told)))


def test_headers_are_of_the_tree(work: Path) -> None:
    names = gxx(work, "-M", "a.cpp").replace("\\\n", " ").split()
    assert inside({name for name in names if name not in ("a.o:", "a.cpp")})


def test_what_is_linked_is_of_the_tree(work: Path) -> None:
    gxx(work, "-fPIC", "-c", "a.cpp", "-o", "a.o")
    told = gxx(work, "-shared", "a.o", "-o", "a.so", "-lpthread", "-ldl", "-lrt", "-Wl,--trace")
    names = set(told.split()) - {"a.o"}
    assert inside(names)
    assert {"libc.so.6", "libstdc++.so", "crti.o"} <= {Path(name).name for name in names}


def test_same_bytes_wherever_it_lies(work: Path) -> None:
    moved = work / "other place"
    shutil.copytree(TREE, moved)
    for tree, name in ((TREE, "first.so"), (moved, "second.so")):
        flags = ["-fPIC", "-O2", "-D_GLIBCXX_ASSERTIONS", "-shared", "-Wl,-soname,a.so"]
        gxx(work, *flags, "a.cpp", "-o", name, tree=tree)
    first = (work / "first.so").read_bytes()
    assert first == (work / "second.so").read_bytes()
    # An assertion names its header, as if that were installed.
    assert b"\0/usr/include/c++/12/span\0" in first
