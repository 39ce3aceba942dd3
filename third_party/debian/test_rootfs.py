"""The real root file system: complete in itself, and its own Python and compilers run on next to no environment."""

import io
import os
import posixpath
import re
import ssl
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from images.oci import layer, rootfs, rootfs_deb, rootfs_ldcache
from images.oci.rootfs_deb import Member
from images.oci.rootfs_tree import Tree
from third_party.debian import lockfile

FOLDER = Path("third_party/debian")
CHROOT = "/usr/sbin/chroot"
KINDS = {tarfile.REGTYPE: "f", tarfile.DIRTYPE: "d", tarfile.SYMTYPE: "l"}


@pytest.fixture(scope="session")
def tree() -> Tree:
    owners = {entry.path: entry.owner for entry in layer.read_listing(FOLDER / "rootfs.files.json")}
    made = Tree()
    with tarfile.open(FOLDER / "rootfs.tar.gz") as tar:
        for info in tar:
            source = tar.extractfile(info) if info.isreg() else None
            data = source.read() if source else b""
            member = Member(info.name, KINDS[info.type], info.mode, info.uid, info.gid, info.linkname, data)
            made.add(member, owners[info.name])
    return made


@pytest.fixture(scope="session")
def lock() -> dict[str, lockfile.Deb]:
    return lockfile.read(FOLDER / "bookworm.lock.bzl")


def programs(tree: Tree) -> Iterator[tuple[str, ELFFile]]:
    for path, node in tree.nodes.items():
        if node.member.data[:4] == b"\x7fELF" and not path.endswith(".o"):
            yield path, ELFFile(io.BytesIO(node.member.data))


def test_every_library_that_a_program_needs_is_there(tree: Tree) -> None:
    folders = [tree.real(folder) for folder in rootfs_ldcache.folders(tree)]
    seen, missing = 0, []
    for path, elf in programs(tree):
        for segment in elf.iter_segments():
            if isinstance(segment, DynamicSegment):
                for tag in segment.iter_tags("DT_NEEDED"):
                    seen += 1
                    name = str(tag.needed)  # type: ignore[attr-defined]
                    if not any(tree.real(f"{folder}/{name}") for folder in folders):
                        missing.append((path, name))
    assert missing == []
    assert seen > 300


def test_every_interpreter_is_there(tree: Tree) -> None:
    interpreters = {
        match.group(1).decode().lstrip("/")
        for node in tree.nodes.values()
        if node.member.mode & 0o111 and (match := re.match(rb"#! *(\S+)", node.member.data))
    }
    for _, elf in programs(tree):
        named = (s.get_interp_name() for s in elf.iter_segments() if isinstance(s, InterpSegment))
        interpreters |= {str(name).lstrip("/") for name in named}
    assert {"bin/sh", "lib64/ld-linux-x86-64.so.2"} <= interpreters
    # Modules of the standard library that are not run as programs name an interpreter too.
    assert sorted(path for path in interpreters if tree.real(path) is None) == ["usr/local/bin/python"]


def test_no_link_leads_nowhere(tree: Tree) -> None:
    links = [path for path, node in tree.nodes.items() if node.member.kind == "l"]
    assert [path for path in links if tree.real(path) is None] == []
    assert {f"usr/bin/{name}" for name in ("awk", "c++", "cc", "cpp", "g++", "gcc", "python3", "which")} <= set(links)


def test_nothing_is_setuid_and_little_is_for_root_alone(tree: Tree) -> None:
    assert [path for path, node in tree.nodes.items() if node.member.mode & 0o6000] == []
    closed = [p for p, node in tree.nodes.items() if node.member.kind != "l" and not node.member.mode & 0o004]
    assert closed == ["etc/ssl/private", "root"]
    loose = [p for p, node in tree.nodes.items() if node.member.kind != "l" and node.member.mode & 0o002]
    assert loose == ["run/lock", "tmp", "var/tmp"]
    assert {tree.nodes[path].member.mode for path in loose} == {0o1777}


def test_accounts_and_mount_points(tree: Tree) -> None:
    passwd = [line.split(":") for line in tree.data("etc/passwd", "this test").decode().splitlines()]
    assert [row for row in passwd if row[0] == "moet"] == [
        ["moet", "x", "1000", "1000", "serves models", "/var/lib/moet", "/bin/bash"]
    ]
    assert [tree.real(row[6]) for row in passwd if row[0] in ("moet", "root")] == ["usr/bin/bash"] * 2
    home = tree.nodes["var/lib/moet"].member
    assert (home.kind, home.uid, home.gid, home.mode) == ("d", 1000, 1000, 0o755)
    assert all(tree.nodes[path].member.kind == "d" for path in ("dev", "proc", "run", "sys", "tmp"))
    assert not [path for path in ("etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab") if path in tree.nodes]


def test_certificates_lie_where_the_root_s_openssl_looks(tree: Tree) -> None:
    crypto = tree.data("usr/lib/x86_64-linux-gnu/libcrypto.so.3", "this test")
    found = re.search(rb'OPENSSLDIR: "([^"]+)"', crypto)
    assert found
    default = tree.real(posixpath.join(found.group(1).decode(), "cert.pem"))
    assert default == "etc/ssl/certs/ca-certificates.crt"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=tree.data(default, "this test").decode())
    packaged = [path for path in tree.nodes if path.startswith("usr/share/ca-certificates/mozilla/")]
    assert len(context.get_ca_certs()) == len(packaged) > 100
    assert tree.real("usr/lib/ssl/openssl.cnf") == "etc/ssl/openssl.cnf"


def test_package_database_is_the_lock(tree: Tree, lock: dict[str, lockfile.Deb]) -> None:
    status = tree.data("var/lib/dpkg/status", "this test").decode()
    stanzas = [rootfs_deb.parse_control(text) for text in status.split("\n\n")]
    installed = {}
    for fields in stanzas:
        source, _, version = fields.get("Source", fields["Package"]).partition(" ")
        source_version = version.strip("()") or fields["Version"]
        installed[fields["Package"]] = (fields["Version"], fields["Architecture"], source, source_version)
    assert installed == {n: (d.version, d.architecture, d.source, d.source_version) for n, d in lock.items()}
    assert {node.owner for node in tree.nodes.values()} <= lock.keys()


def test_every_package_shows_its_licence(tree: Tree, lock: dict[str, lockfile.Deb]) -> None:
    assert [name for name in lock if tree.real(f"usr/share/doc/{name}/copyright") is None] == []


def test_the_same_layer_from_another_folder_and_order(tmp_path: Path) -> None:
    debs = sorted(Path("..").glob("deb_*/*.deb"), reverse=True)
    assert len(debs) > 70
    for deb in debs:
        (tmp_path / deb.name).symlink_to(deb.resolve())
    with tarfile.open(FOLDER / "rootfs.tar.gz") as tar:
        mtime = next(iter(tar)).mtime
    (tmp_path / "policy.toml").write_bytes((FOLDER / "rootfs.toml").read_bytes())
    built = layer.read_descriptor(FOLDER / "rootfs.json")
    code = rootfs.main([
        *("--name", built.name, "--comment", built.comment, "--mtime", str(mtime)),
        *("--policy", str(tmp_path / "policy.toml"), "--out", str(tmp_path / "again")),
        *(str(tmp_path / deb.name) for deb in debs),
    ])
    assert code == 0
    assert layer.read_descriptor(tmp_path / "again.json") == built
    assert (tmp_path / "again.files.json").read_bytes() == (FOLDER / "rootfs.files.json").read_bytes()
    for path in tmp_path.iterdir():
        path.unlink()


@pytest.fixture(scope="session")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        with tarfile.open(FOLDER / "rootfs.tar.gz") as tar:
            tar.extractall(folder)
        if subprocess.run([CHROOT, folder, "/bin/true"], capture_output=True).returncode:
            pytest.skip("chroot is not permitted here")
        Path(folder, "dev/null").touch()
        yield Path(folder)


def inside(root: Path, *command: str, **environment: str) -> str:
    """Runs a program of the root with no more environment than this; returns what it printed."""
    done = subprocess.run([CHROOT, root, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ldconfig_of_the_root_writes_the_same_cache(root: Path) -> None:
    cache = root / "etc/ld.so.cache"
    ours = cache.read_bytes()
    before = set(root.rglob("*.so*"))
    inside(root, "/sbin/ldconfig")
    assert cache.read_bytes() == ours
    assert set(root.rglob("*.so*")) == before
    assert "libnuma.so.1 (libc6,x86-64)" in inside(root, "/sbin/ldconfig", "-p")


def test_python_finds_certificates_time_zones_and_its_modules(root: Path) -> None:
    told = inside(root, "/usr/bin/python3", "-c", """if True:
        import bz2, ctypes, curses, decimal, lzma, readline, sqlite3, ssl, uuid, zlib, zoneinfo, os, pwd, mimetypes
        print(len(ssl.create_default_context().get_ca_certs()), zoneinfo.ZoneInfo("Europe/Berlin"))
        print([name for name in os.environ if "SSL" in name], pwd.getpwuid(1000).pw_name)
        print(mimetypes.guess_type("a.json")[0])
        ctypes.CDLL("libnuma.so.1").numa_available()
    """).split()
    assert int(told[0]) > 100
    assert told[1:] == ["Europe/Berlin", "[]", "moet", "application/json"]


C = r"""
#include <Python.h>
#include <crypt.h>
#include <linux/mempolicy.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
int main(int argc, char **argv) {
  double total = 0;
  #pragma omp parallel for reduction(+ : total)
  for (int i = 0; i < 100; i++) total += sqrt((double)i * i);
  printf("%d.%d %.0f\n", PY_MAJOR_VERSION, PY_MINOR_VERSION, total);
}
"""
CXX = r"""
#include <algorithm>
#include <iostream>
#include <ranges>
#include <span>
#include <thread>
int main() {
  int values[] = {3, 1, 2};
  std::ranges::sort(std::span(values));
  std::jthread([&] { for (int v : values | std::views::reverse) std::cout << v; }).join();
}
"""


def test_compilers_compile_and_link(root: Path) -> None:
    (root / "tmp/a.c").write_text(C)
    (root / "tmp/b.cc").write_text(CXX)
    flags = ["-O2", "-fopenmp", "-I/usr/include/python3.11", "-lm", "-lpthread", "-ldl", "-lrt", "-lutil"]
    inside(root, "/usr/bin/cc", "/tmp/a.c", "-o", "/tmp/a", *flags, PATH="/usr/bin")
    assert inside(root, "/tmp/a") == "3.11 4950\n"
    inside(root, "/usr/bin/c++", "-std=c++20", "-O2", "/tmp/b.cc", "-o", "/tmp/b", PATH="/usr/bin")
    assert inside(root, "/tmp/b") == "321"
    rule = "rule so\n  command = g++ -std=c++20 -fPIC -shared $in -o $out\n\nbuild b.so: so b.cc\n"
    (root / "tmp/build.ninja").write_text(rule)
    inside(root, "/usr/bin/ninja", "-C", "/tmp", PATH="/usr/bin")
    assert (root / "tmp/b.so").read_bytes()[:4] == b"\x7fELF"


def test_shell_tools(root: Path) -> None:
    script = "which cc awk; echo 2 | awk '{print $1+1}' | sed s/3/4/; id -un 1000; find /var/lib/moet; date +%Z"
    assert inside(root, "/usr/bin/locale", "-a").split() == ["C", "C.utf8", "POSIX"]
    assert inside(root, "/bin/bash", "-c", script, PATH="/usr/bin").split() == [
        *("/usr/bin/cc", "/usr/bin/awk", "4", "moet", "/var/lib/moet", "UTC")
    ]
