"""The self-test of the kernels on this machine's GPUs, run by the server's interpreter before it serves."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from images.manifest import model
from serving.runtime import imports
from serving.runtime.switches import StepState

MODULE = "moet_kernels.selftest"
_TIMEOUT_S = 600


def run(steps: Sequence[StepState], python: str, environment: Mapping[str, str]) -> bool:
    """Tests every family of kernels that the steps name; says on stderr what came out and what to do.

    Returns whether the server may start: where a family is wrong that only steps use which are off, it may. Families
    of live steps come first, so that no other can take the GPU away from them.
    """
    live = _families(steps, live=True)
    names = [*live, *(family for family in _families(steps, live=False) if family not in live)]
    if not names:
        _say("selftest: no step of this image has kernels: nothing to test")
        return True
    try:
        found = _results(names, python, environment)
    except _NoResultError as error:
        _say(f"refused: the kernels could not be tested: {error}; without {model.SELFTEST} the server starts untested")
        return False
    failed = [family for family in names if not found[family]]
    for family in failed:
        if family not in live:
            off = " and ".join(_switches(steps, [family], live=False))
            _say(f"warning: wrong on this machine: {family}, which no live step uses; leave {off} at 0")
    wrong = [family for family in failed if family in live]
    if wrong:
        settings = " ".join(f"-e {switch}=0" for switch in _switches(steps, wrong, live=True))
        way = f"to serve with upstream's paths instead: {settings}" if settings else "go back to another release"
        _say(f"refused: wrong on this machine: {', '.join(wrong)}; {way}")
    return not wrong


class _NoResultError(Exception):
    """The self-test came to no end that says of every family whether it is right; why, in one line."""


def _results(names: Sequence[str], python: str, environment: Mapping[str, str]) -> dict[str, bool]:
    """Whether each family is right on every GPU. Raises _NoResultError."""
    command = [python, "-m", MODULE, "--json", *(word for name in names for word in ("--family", name))]
    try:
        done = subprocess.run(
            command,
            env=imports.server_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if found["error"] is not None:
            raise _NoResultError(found["error"])
        results = {name: [one["ok"] for one in found["results"] if one["family"] == name] for name in names}
        return {name: bool(results[name]) and all(results[name]) for name in names}
    except subprocess.TimeoutExpired:
        raise _NoResultError(f"no end in {_TIMEOUT_S} s") from None
    except OSError as error:
        raise _NoResultError(str(error)) from None
    except (ValueError, IndexError, KeyError, TypeError):
        raise _NoResultError(f"it ended with status {done.returncode} and no result") from None


def _families(steps: Sequence[StepState], live: bool) -> list[str]:
    return list(dict.fromkeys(family for state in steps if bool(state.live) is live for family in state.step.kernels))


def _switches(steps: Sequence[StepState], families: Sequence[str], live: bool) -> Iterator[str]:
    for state in steps:
        if bool(state.live) is live and state.step.switch and set(state.step.kernels) & set(families):
            yield state.step.switch


def _say(line: str) -> None:
    print(f"moet: {line}", file=sys.stderr, flush=True)
