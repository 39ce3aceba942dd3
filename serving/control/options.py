"""Arguments that the verbs which change or look at a server have in common."""

import argparse

from releases.rollback.rollback_sources import split
from serving.control.back import NOTHING_SERVES
from serving.control.change import How
from serving.generations import store

EXITS = ((NOTHING_SERVES, "the change failed, and nothing serves now (1: what ran before serves)"),)


def add_server(parser: argparse.ArgumentParser) -> None:
    """Adds --server and --host."""
    parser.add_argument("--server", metavar="NAME", help="which server (default: this user's only one)")
    add_host(parser)


def add_host(parser: argparse.ArgumentParser) -> None:
    """Adds --host."""
    parser.add_argument(
        "--host", help="Docker's address, unix:///PATH or tcp://HOST:PORT (default: DOCKER_HOST, else the context)"
    )


def add_change(parser: argparse.ArgumentParser) -> None:
    """Adds what a change can be told."""
    parser.add_argument("--yes", action="store_true", help="do not ask before a running server is stopped")
    parser.add_argument("--no-preflight", action="store_true", help="do not look at the host first")
    parser.add_argument(
        "--own-kv-dir",
        action="store_true",
        help="where the folder of KV_OFFLOAD_FS_DIR has blocks of another format, use one beside it",
    )
    parser.add_argument(
        "--registry", metavar="HOST/NAME", help="the repository that a release is pulled from where the engine lacks it"
    )
    parser.add_argument(
        "--plain-http", action="store_true", help="allow plain HTTP and certificates that do not verify"
    )


def how(options: argparse.Namespace) -> How:
    """What add_change() added. Raises UserError."""
    if options.registry:
        split(options.registry)
    return How(options.yes, not options.no_preflight, options.own_kv_dir, options.registry, options.plain_http)


def server(options: argparse.Namespace) -> str:
    """The server that add_server() names. Raises UserError where none can be meant."""
    return store.named(options.server) if options.server else store.only()


def number(text: str) -> int:
    """A generation's number, for argparse."""
    if not text.isdecimal() or not 1 <= int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a generation's number, from 1")
    return int(text)
