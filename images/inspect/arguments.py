"""Arguments that the verbs on images share, and what becomes of them."""

import argparse
from pathlib import Path
from typing import Any

from images.engine import opening
from images.inspect.source import open_image
from images.inspect.view import View
from releases.known import Known
from tools.cli.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Adds what says where images are: --ref, --engine, --host, --plain-http, --authfile."""
    parser.add_argument(
        "--ref", metavar="NAME", help="which image of a layout or tar that has several: NAME:TAG, TAG or sha256:..."
    )
    opening.add_arguments(parser)
    add_registry(parser)


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Adds what a registry needs: --plain-http and --authfile."""
    parser.add_argument(
        "--plain-http", action="store_true", help="allow a registry plain HTTP and certificates that do not verify"
    )
    parser.add_argument(
        "--authfile",
        type=Path,
        metavar="FILE",
        help="credentials, as skopeo login writes them (default: where docker, podman and skopeo keep theirs)",
    )


def known(options: argparse.Namespace) -> Known | None:
    """The releases that are known here; None where there are none, unless --tree named a tree."""
    try:
        return Known.find(options.tree)
    except UserError:
        if options.tree is not None:
            raise
        return None


def view(text: str, options: argparse.Namespace, releases: Known | None) -> View:
    """The image that `text` means. Raises UserError."""
    where: dict[str, Any] = {"engine": options.engine, "host": options.host, "layout_ref": options.ref}
    return open_image(text, releases, plain_http=options.plain_http, authfile=options.authfile, **where)
