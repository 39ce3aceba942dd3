"""Debian packages to one layer: a root file system, without maintainer scripts and without a staging folder.

usage: rootfs.py --name NAME [--comment TEXT] --mtime SECONDS --policy FILE --out PREFIX DEB...

Writes PREFIX.tar.gz, PREFIX.json and PREFIX.files.json. The bytes depend on the packages and the
policy alone, not on their order or place.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from images.oci import (
    command,
    layer,
    rootfs_deb,
    rootfs_dpkg,
    rootfs_ldcache,
    rootfs_policy,
    rootfs_scripts,
    rootfs_tree,
)


def build(debs: Sequence[rootfs_deb.Deb], policy: rootfs_policy.Policy) -> rootfs_tree.Tree:
    """Returns the complete tree of `debs` under `policy`.

    Raises LayerError, with one line for the user.
    """
    drop, keep = rootfs_tree.Globs(policy.drop), rootfs_tree.Globs(policy.keep)
    tree = rootfs_tree.merge(debs, drop, keep, policy.winners)
    rootfs_scripts.apply(tree, policy)
    rootfs_ldcache.record(tree)
    rootfs_dpkg.record(tree, debs)
    return tree


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = command.parser()
    parser.add_argument("--policy", required=True, type=Path)
    parser.add_argument("debs", nargs="+", type=Path)
    args = parser.parse_args(argv)

    def fill(out: layer.LayerWriter) -> None:
        policy = rootfs_policy.read(args.policy)
        build([rootfs_deb.read(path) for path in args.debs], policy).write(out)

    return command.write(args, fill)


if __name__ == "__main__":
    sys.exit(main())
