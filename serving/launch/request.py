"""What the verbs of `moet serve` have in common: profile, settings and image from a command line."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass

from releases.known import Known
from serving.launch import image, settings
from serving.launch.settings import Settings
from serving.profiles import load


@dataclass(frozen=True)
class Request:
    """What is to be served. `image_source` says in words why this image; `notes` are lines worth saying."""

    settings: Settings
    image: str
    image_source: str
    notes: tuple[str, ...]


def add_profile(parser: argparse.ArgumentParser, without: str | None = None) -> None:
    """Adds the argument PROFILE; it may be left out where `without` says what that means."""
    text = "the line, for example dsv41" + (f" (without it: {without})" if without else "")
    parser.add_argument("profile", metavar="PROFILE", nargs="?" if without else None, help=text)


def add_arguments(parser: argparse.ArgumentParser, without: str | None = None) -> None:
    """Adds PROFILE, as add_profile() does, and --set."""
    add_profile(parser, without)
    parser.add_argument(
        "--set",
        dest="given",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="a knob's value, as often as needed; wins over the environment variable of that name",
    )


def chosen(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Request:
    """Reads what add_arguments() added. Raises UserError."""
    known = Known.find(options.tree)
    profile = load.load(options.profile, known.root)
    resolved = settings.resolve(profile, options.given, environment)
    name, source = image.choose(resolved, known)
    image.check_switches(resolved, name, known)
    return Request(resolved, name, source, tuple(settings.unknown_switches(profile, environment)))
