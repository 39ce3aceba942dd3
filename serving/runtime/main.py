"""The image's entry point: attest, then become the server.

  moet-serve [serve] ARGUMENTS...     attest, report on stderr, then become `vllm serve ARGUMENTS...`
  moet-serve exec COMMAND...          attest, report on stderr, then become COMMAND
  moet-serve attest [--json] [--manifest-sha256 HEX]
                                      attest and report on stdout
  moet-serve steps [--json]           the steps and their switches, without attesting
  moet-serve manifest                 the manifest as it is in the image, without attesting
  moet-serve --help                   this text; vLLM's own is `moet-serve serve --help`

A model in the working folder that is named like a verb is given as ./NAME. A shell, unattested:
--entrypoint bash. The server and COMMAND run with PYTHONSAFEPATH=1: the working folder is not searched for
modules. With VLLM_MOET_SELFTEST=1 the kernels are tested on this machine's GPUs before either starts.

Exit status, but for what `serve` and `exec` become:
  0    attested, or printed
  2    wrong usage, or a switch that is set to a value which it does not take
  3    the image differs from its manifest
  4    nothing to attest against: the manifest or MOET_MANIFEST_SHA256 is missing or malformed
  5    a kernel of a live step is wrong on this machine, or could not be tested
  126  the command cannot be run
  127  the command was not found
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence

from serving.runtime import attest, imports, record, report, selftest, switches
from serving.runtime.mismatch import inside

OK = 0
USAGE = 2
MISMATCH = 3
CANNOT_ATTEST = 4
SELFTEST = 5
CANNOT_RUN = 126
NOT_FOUND = 127


def main(
    arguments: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    root: str = "/",
    python: str = sys.executable,
) -> int:
    """Runs a verb; returns the exit status, or does not return where the process becomes another.

    `root` is the image's root, another than "/" only in tests; `python` is the server's interpreter.
    """
    verb, rest = (arguments[0], list(arguments[1:])) if arguments else ("serve", [])
    if verb in ("-h", "--help"):
        print(__doc__.strip())
        return OK
    try:
        if verb in ("attest", "steps", "manifest"):
            return _print(verb, rest, environment, root, python)
        if verb == "exec":
            return _exec(rest, environment, root, python)
        return _serve(rest if verb == "serve" else list(arguments), environment, root, python)
    except attest.CannotAttestError as error:
        print(f"moet: {error}", file=sys.stderr)
        return CANNOT_ATTEST


def _print(verb: str, rest: list[str], environment: Mapping[str, str], root: str, python: str) -> int:
    options = _parser(verb).parse_args(rest)
    if verb == "manifest":
        sys.stdout.buffer.write(attest.read_manifest(root))
        return OK
    if verb == "steps":
        states = switches.states(attest.parse_manifest(attest.read_manifest(root)), environment)
        lines = "".join(line + "\n" for line in report.table(states))
        sys.stdout.write(report.dump(report.steps_json(states)) if options.json else lines)
        return OK
    try:
        result = attest.attest(root, environment, python, options.manifest_sha256)
    except attest.CannotAttestError as error:
        if options.json:
            sys.stdout.write(report.cannot_attest_json(str(error)))
        raise
    sys.stdout.write(report.as_json(result) if options.json else report.text(result))
    return _status(result)


def _serve(rest: list[str], environment: Mapping[str, str], root: str, python: str) -> int:
    launcher = inside(root, record.LAUNCHER)
    return _become(launcher, [launcher, "serve", *rest], environment, root, python)


def _exec(rest: list[str], environment: Mapping[str, str], root: str, python: str) -> int:
    command = rest[1:] if rest[:1] == ["--"] else rest
    if not command:
        print("moet: exec: no command given: expected `exec COMMAND...`", file=sys.stderr)
        return USAGE
    program = command[0]
    if "/" not in program:
        program = shutil.which(program, path=environment.get("PATH", os.defpath)) or program
    return _become(program, command, environment, root, python)


def _become(program: str, command: list[str], environment: Mapping[str, str], root: str, python: str) -> int:
    result = attest.attest(root, environment, python)
    sys.stderr.write(report.text(result))
    if not result.ok:
        return _status(result)
    sys.stdout.flush()
    sys.stderr.flush()
    if switches.selftest(environment) and not selftest.run(result.steps, python, environment):
        return SELFTEST
    # Python ignores these two, and what is ignored stays so in the next program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, command, imports.server_environment(environment))
    except FileNotFoundError:
        print(f"moet: {program}: not found: expected a program of the image", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"moet: {program}: cannot be run: {error.strerror}", file=sys.stderr)
        return CANNOT_RUN


def _status(result: attest.Attestation) -> int:
    if result.mismatches:
        return MISMATCH
    return USAGE if result.errors else OK


def _parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"moet-serve {verb}", allow_abbrev=False)
    if verb != "manifest":
        parser.add_argument("--json", action="store_true", help="for machines")
    if verb == "attest":
        parser.add_argument(
            "--manifest-sha256",
            metavar="HEX",
            help="the manifest's hash from outside (a registry's label), instead of MOET_MANIFEST_SHA256",
        )
    return parser
