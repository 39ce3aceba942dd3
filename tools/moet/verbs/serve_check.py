"""moet serve check."""

import argparse
from pathlib import Path

from releases.known import Known
from serving.check import published, run, target, wording
from serving.check.record import UNKNOWN, Record
from serving.check.run import Run, Wanted
from serving.check.subject import Sizes
from serving.check.target import Target
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb

_USUAL = Sizes()
_FEWEST = 64
_MOST_STREAMS = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("url", nargs="?", metavar="URL", help="any server, for example http://127.0.0.1:8001")
    which.add_argument(
        "--server", metavar="NAME", help="one that `moet serve up` started (default: this user's only one)"
    )
    parser.add_argument("--model", metavar="NAME", help="of several that a URL serves, which (default: the first)")
    parser.add_argument(
        "--line",
        choices=sorted(published.load()),
        help="whose published figures to compare with (default: that of the server, or of the model's name)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=run.GROUPS,
        metavar="GROUP",
        help=f"run this group alone, as often as needed: {', '.join(run.GROUPS)}",
    )
    parser.add_argument(
        "--tokens", type=_tokens, default=_USUAL.answer, metavar="N", help="of timed answers (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt-tokens",
        type=_number,
        default=_USUAL.prompt,
        metavar="N",
        help="of timed prompts (default: %(default)s)",
    )
    parser.add_argument(
        "--streams",
        type=_streams,
        default=_USUAL.streams,
        metavar="N",
        help="how many answers at once, beside one alone (default: %(default)s)",
    )
    parser.add_argument(
        "--needle",
        type=_numbers,
        default=_USUAL.needles,
        metavar="N,...",
        help=f"tokens of texts to find something in (default: {','.join(map(str, _USUAL.needles))})",
    )
    parser.add_argument("--key-file", metavar="FILE", help="API key, as the line VLLM_API_KEY=KEY")
    parser.add_argument(
        "--patience",
        type=_number,
        default=300,
        metavar="SECONDS",
        help="how long one answer, or the next part of one, may take (default: %(default)s)",
    )
    parser.add_argument("--receipt", type=Path, metavar="FILE", help="a new .json file below docs/evidence")


def execute(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    if options.url:
        checked = target.by_url(options.url, options.model, options.key_file)
    elif options.model:
        raise UserError("--model goes with a URL: a server that `moet serve up` started serves one model")
    else:
        releases = Known.find(options.tree).changelog.entries
        checked = target.by_name(options.server, options.key_file, releases)
    record = None
    if options.receipt:
        root = Known.find(options.tree).need_tree("a receipt")
        record = Record(root, options.receipt, checked, _command(options))
    groups = [group for group in run.GROUPS if group in (options.only or run.GROUPS)]
    sizes = Sizes(options.tokens, options.prompt_tokens, options.streams, options.needle)
    wanted = Wanted(options.line, sizes, groups, options.patience)
    state, shown = Run([]), wording.Shown(out)
    try:
        for result in run.run(checked, wanted, out, state):
            shown.result(result)
    except BaseException:
        # Whatever was found is told, also where somebody did not wait for the rest.
        shown.end(state)
        out.document(wording.document(checked, state, None))
        raise
    shown.end(state)
    written = None
    try:
        if record and not state.failed:
            written = record.write("".join(f"{line}\n" for line in shown.found))
    finally:
        out.document(wording.document(checked, state, written))
    if record:
        out.note(_told(checked, written))
    return 1 if state.failed else 0


def _told(checked: Target, written: str | None) -> str:
    if written is None:
        return "checks failed: no receipt was written"
    if checked.digest is None:
        return f"wrote {written}: the image is {UNKNOWN} ({checked.doubt}), so that no release can cite it"
    return f"wrote {written}: link to it with [receipt]({written})"


def _command(options: argparse.Namespace) -> list[str]:
    """The command as a person would repeat it."""
    words = ["moet", "serve", "check", *([options.url] if options.url else [])]
    words += ["--server", options.server] if options.server else []
    for name, default in (("tokens", _USUAL.answer), ("prompt_tokens", _USUAL.prompt), ("streams", _USUAL.streams)):
        if (value := getattr(options, name)) != default:
            words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--needle", ",".join(map(str, options.needle))] if options.needle != _USUAL.needles else []
    words += [word for name in ("model", "line") if (value := getattr(options, name)) for word in (f"--{name}", value)]
    return words + [word for group in options.only or () for word in ("--only", group)]


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1 to 10000000")
    return int(text)


def _tokens(text: str) -> int:
    if (number := _number(text)) < _FEWEST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected at least {_FEWEST}: fewer tell no rate")
    return number


def _streams(text: str) -> int:
    if (number := _number(text)) > _MOST_STREAMS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected at most {_MOST_STREAMS}, each has a thread here")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in text.split(","))


VERB = Verb(
    summary="try a running server: speed, long contexts, tools, JSON, pictures; beside what others published",
    description="""Asks a running OpenAI-compatible server, and says of each check pass, low, fail or skipped, and why.

decode: answers of prose and of code, alone and several at once: tokens and engine steps a second, apart. Steps are the
engine's own count (/metrics), or parts of answers where it shows none. prompt: prompts that no cache has. needle: one
sentence, at 10, 50 and 90 % of long made-up texts. tools, json: values that the question gives. vision: a number on a
picture made for it. effort: every reasoning_effort of the line. The same prompts each time, and the likeliest answer.

The figures beside them are others', of their servers; `low` is below 90 % of them, is no failure, and comes with what
is usual. Where the server runs on this host, its cards are looked at meanwhile (nvidia-smi, read only).

The API key is that of the server, or for a URL of this host's loopback address VLLM_API_KEY; any other needs
--key-file. A receipt (--receipt) is written where nothing failed; with the image's digest, which is known of servers
that `moet serve up` started, it can be cited.

Exit status 1: a check failed; stdout has it, or with --json a document of schema moet.serve-check.v1.""",
    arguments=add_arguments,
    run=execute,
    examples=(
        ("serve check", "the server that runs here, with everything"),
        ("serve check http://127.0.0.1:8001 --only decode --only needle --needle 30000", "some of it, of any server"),
        ("serve check --receipt docs/evidence/dsv41-vllm0.33.0-r1/check.json", "as evidence for a release"),
    ),
)
