"""Packages merged into one tree: /bin, /sbin and /lib* moved into /usr, dropped paths left out, collisions refused."""

import fnmatch
import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from images.oci.layer import LayerError, LayerWriter
from images.oci.rootfs_deb import Deb, DebError, Member

MERGED = ("bin", "lib", "lib32", "lib64", "libo32", "libx32", "sbin")
_LINKED = ("bin", "lib", "lib64", "sbin")
_SETID = 0o6000


class TreeError(LayerError):
    """Packages that cannot be merged; the message is one line for the user."""


@dataclass(frozen=True)
class Node:
    """One path of the tree, and the package that owns it."""

    member: Member
    owner: str


def merged(path: str) -> str:
    """Returns where a path lies once the top-level directories of programs and libraries are in /usr."""
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


def merged_target(path: str, target: str) -> str:
    """Returns a symbolic link's target so that it still points to the same file after `path` has moved."""
    if target.startswith("/") or merged(path) == path or ".." not in target.split("/"):
        return target
    absolute = merged(posixpath.normpath(posixpath.join("/", posixpath.dirname(path), target)).lstrip("/"))
    return posixpath.relpath("/" + absolute, "/" + posixpath.dirname(merged(path)))


class Globs:
    """Globs that remember which of them have matched; `*` matches slashes too."""

    def __init__(self, globs: Iterable[str]) -> None:
        self._patterns = {glob: re.compile(fnmatch.translate(glob)) for glob in globs}
        self._used: set[str] = set()

    def match(self, path: str) -> bool:
        """Whether any glob matches the whole path."""
        hits = [glob for glob, pattern in self._patterns.items() if pattern.match(path)]
        self._used.update(hits)
        return bool(hits)

    def unused(self) -> list[str]:
        """Returns the globs that have matched nothing so far, sorted."""
        return sorted(self._patterns.keys() - self._used)


class Tree:
    """Paths (relative to the root) with what lies there; `dropped_setid` lists what lost setuid or setgid."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.dropped_setid: list[str] = []
        self._implied: set[str] = set()

    def add(self, member: Member, owner: str) -> None:
        """Adds one path and the directories above it.

        Directories may be shared: the mode of the first that a package really has stays. Raises
        TreeError when another package has the path with other content, or something else above it.
        """
        self._parents(member.path, owner)
        known = self.nodes.get(member.path)
        if member.path in self._implied and member.kind == "d":
            self._implied.remove(member.path)
        elif known is not None:
            if _same(known.member, member):
                return
            raise TreeError(
                f"/{member.path}: {known.owner} and {owner} install it with different content;"
                " drop one, or name the winner in the policy"
            )
        if member.mode & _SETID and member.kind != "l":
            self.dropped_setid.append(member.path)
            member = replace(member, mode=member.mode & ~_SETID)
        self.nodes[member.path] = Node(member, owner)

    def _parents(self, path: str, owner: str) -> None:
        parent = posixpath.dirname(path)
        above = self.nodes.get(parent)
        if above is not None and above.member.kind != "d":
            raise TreeError(f"/{path}: {owner} installs it under /{parent}, which is no directory in {above.owner}")
        if parent and above is None:
            self.add(Member(parent, "d", 0o755, 0, 0), owner)
            self._implied.add(parent)

    def file(self, path: str, data: bytes, owner: str, mode: int = 0o644) -> None:
        """Adds a regular file that belongs to root."""
        self.add(Member(path, "f", mode, 0, 0, data=data), owner)

    def data(self, path: str, why: str) -> bytes:
        """Returns a file's content; raises TreeError, saying `why` it is wanted, when there is no such file."""
        node = self.nodes.get(path)
        if node is None or node.member.kind != "f":
            raise TreeError(f"/{path}: no such file in the packages, but {why} needs it")
        return node.member.data

    def real(self, path: str) -> str | None:
        """Returns the path with its symbolic links followed, or None when it leads nowhere in the tree."""
        done: list[str] = []
        todo = path.split("/")[::-1]
        for _ in range(1000):
            if not todo:
                return "/".join(done)
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[-1:]
                continue
            here = "/".join([*done, part])
            node = self.nodes.get(here)
            if node is None:
                return None
            if node.member.kind == "l":
                if node.member.target.startswith("/"):
                    done = []
                todo += node.member.target.split("/")[::-1]
            else:
                done.append(part)
        return None

    def write(self, out: LayerWriter) -> None:
        """Writes the whole tree in the order of its paths, hard links as the files that they are."""
        for path in sorted(self.nodes):
            node = self.nodes[path]
            member = node.member
            out.owner = node.owner
            if member.kind == "d":
                out.directory(path, member.mode, member.uid, member.gid)
            elif member.kind == "l":
                out.symlink(path, member.target)
            else:
                out.file(path, member.data, None, member.mode, member.uid, member.gid)


def merge(debs: Iterable[Deb], drop: Globs, keep: Globs, winners: dict[str, str]) -> Tree:
    """Returns the tree of all packages, whatever order they come in.

    A path that `drop` matches is left out unless `keep` matches it, and so is a directory that this
    leaves empty. `winners` maps a path that several packages have to the one whose content counts.
    Raises TreeError on a collision, on two packages of one name, and on globs or winners that match nothing.
    """
    tree = Tree()
    for name in _LINKED:
        tree.add(Member(name, "l", 0o777, 0, 0, f"usr/{name}"), "base-files")
    emptied: set[str] = set()
    won: set[str] = set()
    names: dict[str, Deb] = {}
    for deb in sorted(debs, key=lambda d: (d.name, d.path.name)):
        if deb.name in names:
            raise TreeError(f"{deb.name}: given twice, as {names[deb.name].path.name} and {deb.path.name}")
        names[deb.name] = deb
        for member in _resolved(deb):
            if member.path in MERGED and member.kind == "l":
                continue
            path = merged(member.path)
            target = merged_target(member.path, member.target) if member.kind == "l" else member.target
            if drop.match(path) and not keep.match(path):
                emptied.add(path if member.kind == "d" else posixpath.dirname(path))
                if member.kind != "d":
                    continue
            if winners.get(path, deb.name) != deb.name:
                won.add(path)
                continue
            tree.add(replace(member, path=path, target=target), deb.name)
    if unused := drop.unused() + keep.unused() + sorted(winners.keys() - won):
        raise TreeError(f"the policy's {', '.join(unused)} matches nothing in the packages; remove it")
    _prune(tree, emptied)
    return tree


def _resolved(deb: Deb) -> Iterable[Member]:
    """Yields a package's members with hard links turned into copies of their files."""
    files: dict[str, Member] = {}
    for member in deb.members():
        if member.kind == "f":
            files[member.path] = member
        elif member.kind == "h":
            if member.target not in files:
                raise DebError(f"{deb.path.name}: /{member.path} is a hard link to nothing before it")
            member = replace(files[member.target], path=member.path)
        yield member


def _prune(tree: Tree, emptied: set[str]) -> None:
    """Removes the directories that held nothing but dropped paths."""
    children = Counter(posixpath.dirname(path) for path in tree.nodes)
    for folder in sorted(emptied, reverse=True):
        while folder in tree.nodes and not children[folder]:
            del tree.nodes[folder]
            folder = posixpath.dirname(folder)
            children[folder] -= 1


def _same(one: Member, other: Member) -> bool:
    if one.kind == other.kind == "d":
        return True
    return (one.kind, one.target, one.data) == (other.kind, other.target, other.data)
