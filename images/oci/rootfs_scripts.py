"""What the packages' maintainer scripts would have made, from the policy's data."""

import posixpath
import re

from images.oci.rootfs_deb import Member
from images.oci.rootfs_policy import Directory, Link, Policy, Text, User
from images.oci.rootfs_tree import Globs, Node, Tree, TreeError

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n.+?\n-----END CERTIFICATE-----\n", re.DOTALL)


def apply(tree: Tree, policy: Policy) -> None:
    """Adds everything that the policy declares; raises TreeError on an entry that does not fit the packages."""
    _check_owners(policy, {node.owner for node in tree.nodes.values()})
    for directory in policy.directories:
        member = Member(directory.path, "d", directory.mode, directory.uid, directory.gid)
        tree.nodes[directory.path] = Node(member, directory.owner)
    for copy in policy.copies:
        data = tree.data(copy.source, f"the policy's copy to /{copy.path}")
        _check_new(tree, copy.path)
        tree.file(copy.path, data, tree.nodes[copy.source].owner)
    for text in policy.texts:
        _check_new(tree, text.path)
        tree.file(text.path, text.text.encode(), text.owner)
    for link in policy.links:
        _make_room(tree, link.path)
        _check_new(tree, link.path)
        tree.add(Member(link.path, "l", 0o777, 0, 0, link.target), link.owner)
    for link in policy.links:
        if tree.real(link.path) is None:
            raise TreeError(f"/{link.path}: the policy links it to {link.target}, which the packages do not have")
    if policy.users:
        accounts(tree, policy.users)
    if policy.certificates:
        certificates(tree, policy.certificates, policy.bundle)


def accounts(tree: Tree, users: tuple[User, ...]) -> None:
    """Writes /etc/passwd and /etc/group from base-passwd's masters plus `users`, and makes their homes.

    There is no /etc/shadow: no account has a password, and nothing in the image asks for one.
    """
    passwd = tree.data("usr/share/base-passwd/passwd.master", "/etc/passwd").decode()
    group = tree.data("usr/share/base-passwd/group.master", "/etc/group").decode()
    for user in users:
        for text, kind, number in ((passwd, "user", user.uid), (group, "group", user.gid)):
            if re.search(rf"^({re.escape(user.name)}:|[^:]*:[^:]*:{number}:)", text, re.MULTILINE):
                raise TreeError(f"{kind} {user.name} ({number}): base-passwd has that name or number; choose others")
        passwd += f"{user.name}:x:{user.uid}:{user.gid}:{user.comment}:{user.home}:{user.shell}\n"
        group += f"{user.name}:x:{user.gid}:\n"
        home = user.home.lstrip("/")
        tree.add(Member(home, "d", 0o755, user.uid, user.gid), "base-passwd")
    tree.file("etc/passwd", passwd.encode(), "base-passwd")
    tree.file("etc/group", group.encode(), "base-passwd")


def certificates(tree: Tree, globs: tuple[str, ...], bundle: str) -> None:
    """Writes the bundle of all certificates that the globs match, and links beside it, as ca-certificates does.

    Raises TreeError when a glob matches nothing or a match is not one PEM certificate.
    """
    wanted = Globs(globs)
    folder = posixpath.dirname(bundle)
    texts = []
    for path in sorted(tree.nodes):
        node = tree.nodes[path]
        if node.member.kind != "f" or not wanted.match(path):
            continue
        text = node.member.data.decode("ascii", "replace").rstrip("\n") + "\n"
        if not _CERTIFICATE.fullmatch(text):
            raise TreeError(f"/{path}: not one PEM certificate; drop it, or exclude it from the policy's globs")
        texts.append(text)
        name = posixpath.basename(path).removesuffix(".crt").replace(" ", "_").replace(",", "_")
        tree.add(Member(f"{folder}/{name}.pem", "l", 0o777, 0, 0, "/" + path), node.owner)
    if unused := wanted.unused():
        raise TreeError(f"the policy's certificates {', '.join(unused)} match nothing in the packages")
    tree.file(bundle, "".join(texts).encode(), "ca-certificates")


def _make_room(tree: Tree, path: str) -> None:
    """Removes an empty directory in a link's place, as base-files does for /var/run."""
    node = tree.nodes.get(path)
    if node and node.member.kind == "d" and not any(other.startswith(path + "/") for other in tree.nodes):
        del tree.nodes[path]


def _check_new(tree: Tree, path: str) -> None:
    if path in tree.nodes:
        raise TreeError(f"/{path}: {tree.nodes[path].owner} brings it already; remove it from the policy")


def _check_owners(policy: Policy, packages: set[str]) -> None:
    entries: tuple[Link | Text | Directory, ...] = (*policy.links, *policy.texts, *policy.directories)
    for entry in entries:
        if entry.owner not in packages:
            raise TreeError(f"/{entry.path}: the policy gives it to {entry.owner}, which is not among the packages")
