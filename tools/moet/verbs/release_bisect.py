"""moet release bisect."""

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any

from images.engine.opening import add_arguments as add_engine
from images.engine.opening import open_engine
from images.manifest import model
from releases.bisect import bisect, plan
from releases.bisect.bisect import Bisect, Result, Trial
from releases.bisect.plan import Plan
from releases.bisect.subjects import Subjects
from releases.known import Known
from releases.tag import Tag
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.files import lock
from tools.moet.verb import Verb

SCHEMA = "moet.release-bisect.v1"
OUTSIDE = 3
NOT_FOUND = 4

DESCRIPTION = """Finds the step that makes COMMAND say bad of one release and good of another of the same line, by its
exit status: 0 is good, 125 cannot tell, any other below 126 is bad; 126 and above, or a signal, stops the search.

Suspects are the steps of --bad that --good has not or has otherwise. First both ends are judged, then --bad with all
suspects switched off, then a binary search goes over the suspects by number. As long as switches alone bring a state
about, it is the image of --bad with the switches in the environment. Otherwise the commit of --bad is built without the
steps in question, in a folder of its own: a build takes minutes the first time, seconds after. What was found is
judged once more on both sides. When the image is bad without any suspect, what else differs is listed.

COMMAND finds MOET_IMAGE (what docker run takes), MOET_ENV (-e NAME=VALUE ..., for docker run), MOET_LAYOUT (folder of
the OCI layout, where one was built) and MOET_STEPS (numbers of live steps) in its environment, and the switches.
{image}, {layout} and {env} in its words are replaced. A switch that the environment sets stays set while its step is
live: set those of steps that are off by default, or they are not tried. Images that were built stay in the engine as
TAG-bisect-N."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--good", metavar="TAG", required=True, help="a release that COMMAND says good of")
    parser.add_argument("--bad", metavar="TAG", required=True, help="a release of the same line that it says bad of")
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="run COMMAND up to N times an image; more than half decide"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="keep every verdict in FILE; the same bisect goes on from there"
    )
    parser.add_argument(
        "--no-load", action="store_true", help="load nothing into an engine: COMMAND looks at MOET_LAYOUT"
    )
    parser.add_argument(
        "--target",
        metavar="LABEL",
        help="build this Bazel target in place of the image, for every state, and give COMMAND its output as "
        "MOET_LAYOUT: for what shows without a whole image, such as //patches/vllm-0.33.0:overlay",
    )
    add_engine(parser)
    parser.add_argument("command", metavar="COMMAND", nargs="+", help="program and arguments, after --")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    known = Known.find(options.tree)
    tags = Tag.parse(options.good), Tag.parse(options.bad)
    if tags[0].line != tags[1].line:
        raise UserError(f"{tags[0]} and {tags[1]} are of two lines: steps are numbered within one")
    if options.repeat < 1:
        raise UserError(f"--repeat {options.repeat}: expected 1 or more")
    if options.target and not (options.target.startswith("//") and ":" in options.target):
        raise UserError(f"--target {options.target}: expected //PACKAGE:NAME")
    if options.target:
        known.need_tree("--target")
    good, bad = (known.entry(tag) for tag in tags)
    ground = plan.make(known.record(tags[0]).moet, known.record(tags[1]).moet)
    with contextlib.ExitStack() as stack:
        if options.log:
            stack.enter_context(lock.exclusive(options.log.with_name(options.log.name + ".lock")))
        log = bisect.open_log(
            options.log,
            ground,
            (good.digest, bad.digest),
            options.command,
            repeat=options.repeat,
            target=options.target,
        )
        if len(log):
            out.note(f"{options.log}: goes on after {len(log)} verdicts")
        engine = None
        if not options.no_load and not options.target:
            engine = open_engine(options.engine, options.host)
            stack.callback(engine.close)
        subjects = stack.enter_context(
            Subjects(
                ground, (good, bad), os.environ, out, root=known.root, engine=engine, target=options.target
            )
        )
        made = Bisect(ground, subjects, options.command, log, repeat=options.repeat, note=out.note)
        result = made.run()
    _show(out, ground, result, subjects.left)
    status = 0 if result.found else OUTSIDE if not result.suspects else NOT_FOUND
    out.document(_document(ground, result, subjects.left, status))
    return status


def _show(out: Output, ground: Plan, result: Result, left: list[str]) -> None:
    rows = [_row(ground, trial) for trial in result.trials]
    out.table(["image", "steps", "off", "by", "exit status", "verdict"], rows)
    if (found := result.found) is not None:
        out.line(f"step {found.number} {found.name} changes the verdict (numerics {found.numerics})")
        out.line(f"  {found.reason}")
        if found.switch and result.how == bisect.SWITCHES:
            out.line(f"  without it, in the same image: -e {found.switch}=0")
        else:
            switch = f"{found.switch}=0 is not enough" if found.switch else "it has no switch"
            out.line(f"  patches {', '.join(found.patches)}; {switch}")
    elif not result.suspects:
        out.line(f"no step changes the verdict: {ground.bad.tag} is bad without those that {ground.good.tag} has not")
        for line in ground.outside:
            out.line(f"  differs: {line}")
        if not ground.outside:
            out.line("  nothing else differs in what the images say of themselves")
    elif result.steady:
        out.line("the verdict changes with one of these steps; COMMAND could not tell which:")
        for step in result.suspects:
            out.line(f"  {step.number} {step.name}")
    else:
        step = result.suspects[0]
        out.line(
            f"step {step.number} {step.name} may be it, but COMMAND's verdicts around it differ from run to run, or it "
            "cannot tell: see the table; --repeat 5 lets the majority decide"
        )
    if left:
        out.line(f"left in the engine: {', '.join(left)}")


def _row(ground: Plan, trial: Trial) -> list[object]:
    image = ground.good.tag if trial.how == bisect.GOOD_IMAGE else ground.bad.tag
    how = "" if not trial.off else trial.how
    more = " (again)" if trial.again else " (from the log)" if trial.known else ""
    statuses = " ".join(map(str, trial.judgement.statuses)) or "did not build"
    return [
        image,
        " ".join(map(str, trial.steps)) or "none",
        " ".join(trial.off),
        how,
        statuses,
        trial.judgement.verdict.value + more,
    ]


def _document(ground: Plan, result: Result, left: list[str], status: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "good": ground.good.tag,
        "bad": ground.bad.tag,
        "step": model.encode(result.found) if result.found else None,
        "how": result.how if result.suspects else None,
        "steady": result.steady,
        "suspects": [{"number": step.number, "name": step.name} for step in result.suspects],
        "outside": list(ground.outside),
        "trials": [
            {
                "how": trial.how,
                "state": trial.state,
                "steps": list(trial.steps),
                "off": list(trial.off),
                "exit": list(trial.judgement.statuses),
                "verdict": trial.judgement.verdict.value,
                "again": trial.again,
                "from_log": trial.known,
            }
            for trial in result.trials
        ],
        "left_in_engine": left,
        "exit": status,
    }


VERB = Verb(
    summary="find the step that makes a command fail",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        (
            "release bisect --good dsv41:vllm0.33.0-r1 --bad dsv41:vllm0.33.0-r2 -- ./answers.sh {image} {env}",
            "which step changed the answers; answers.sh runs docker run {env} {image} and compares",
        ),
        (
            "release bisect --good dsv41:vllm0.33.0-r1 --bad dsv41:vllm0.33.0-r2 "
            "--target //patches/vllm-0.33.0:overlay -- sh -c 'python3 -m compileall -q $MOET_LAYOUT'",
            "which step brought a file that does not compile; no image is built",
        ),
    ),
    exits=(
        (OUTSIDE, "the difference lies outside the steps; what else differs is listed"),
        (NOT_FOUND, "no single step: COMMAND could not tell some apart, or is not steady"),
    ),
)
