"""Words of `docker run` that a person adds (EXTRA_DOCKER_ARGS), read as Docker's own command reads them.

The SDK has no parser of them. Those that people use are read (test_parity.py holds each against Docker's command); any
other is refused by name.
"""

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

from tools.cli.errors import UserError

# Options that may be given more than once, each with a value; of the others the last one counts.
_LISTS = (
    ("--add-host",),
    ("--cap-add",),
    ("--cap-drop",),
    ("--device",),
    ("--device-cgroup-rule",),
    ("--dns",),
    ("--dns-search",),
    ("--env", "-e"),
    ("--group-add",),
    ("--label", "-l"),
    ("--log-opt",),
    ("--mount",),
    ("--security-opt",),
    ("--sysctl",),
    ("--tmpfs",),
    ("--ulimit",),
    ("--volume", "-v"),
)
_TEXTS = (
    ("--cgroup-parent",),
    ("--cgroupns",),
    ("--cpuset-cpus",),
    ("--cpuset-mems",),
    ("--domainname",),
    ("--entrypoint",),
    ("--hostname", "-h"),
    ("--ipc",),
    ("--log-driver",),
    ("--memory", "-m"),
    ("--memory-reservation",),
    ("--memory-swap",),
    ("--pid",),
    ("--runtime",),
    ("--shm-size",),
    ("--stop-signal",),
    ("--user", "-u"),
    ("--userns",),
    ("--uts",),
    ("--workdir", "-w"),
)
_INTEGERS = (("--blkio-weight",), ("--cpu-shares", "-c"), ("--oom-score-adj",), ("--pids-limit",))
_NUMBERS = (("--cpus",),)
_FLAGS = (("--init",), ("--interactive", "-i"), ("--privileged",), ("--read-only",), ("--tty", "-t"))

# The long names of all.
NAMES = [names[0] for names in (*_LISTS, *_TEXTS, *_INTEGERS, *_NUMBERS, *_FLAGS)]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse(knob: str, words: Sequence[str]) -> argparse.Namespace:
    """The options in `words`; `knob` names these in messages.

    Each option is an attribute: a list of strings, a string, a number or True; None where it is not given.

    Raises UserError for an option that is not read here, a word that is no option, and a value of the wrong type.
    """
    parser = _parser()
    try:
        options, rest = parser.parse_known_args(list(words))
    except UserError as error:
        raise UserError(f"{knob}: {error}: expected what docker run takes") from None
    if rest:
        name = rest[0].partition("=")[0]
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{knob}: {name}: `moet serve up` does not take it: {hint}the forms of `moet serve render` do")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="docker run", allow_abbrev=False, add_help=False)
    for names in _LISTS:
        parser.add_argument(*names, action="append")
    for names in _TEXTS:
        parser.add_argument(*names)
    for names in _INTEGERS:
        parser.add_argument(*names, type=int)
    for names in _NUMBERS:
        parser.add_argument(*names, type=float)
    for names in _FLAGS:
        parser.add_argument(*names, action="store_true", default=None)
    return parser
