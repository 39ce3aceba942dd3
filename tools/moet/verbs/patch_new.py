"""moet patch new: begin a patch."""

import argparse
from pathlib import Path

from patches.tools import begin, options
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser)
    parser.add_argument("name", metavar="NAME", help="words joined by '-', with or without .patch")
    parser.add_argument("files", metavar="FILE", nargs="*", help="files of the wheel to take out, vllm/version.py")
    parser.add_argument("--step", metavar="STEP", help="the step that it belongs to (default: NAME)")
    parser.add_argument("--switch", metavar="SWITCH", help="VLLM_MOET_<NAME>, or none (default: after the step)")
    parser.add_argument("--like", metavar="PATCH", type=Path, help="take up this patch for another version")
    parser.add_argument("--to", metavar="DIR", type=Path, help="where to (default: a folder below the cache)")


def _run(given: argparse.Namespace, out: Output) -> int:
    if given.like and (given.files or given.step or given.switch):
        raise UserError("--like brings files, step and switch with it: leave them out")
    place = options.chosen(given)
    name = begin.patch_name(given.name)
    target = given.to or begin.work_folder(place, name)
    with options.writing(place, out) as wheel:
        if given.like:
            told = begin.begin_like(place, wheel, name, given.like, target)
        else:
            told = begin.begin(place, wheel, name, given.files, given.step, given.switch, target)
    for line in told:
        out.line(line)
    follow = f"moet patch refresh {name.removesuffix('.patch')} --series {place.name} --from {target}"
    out.line(f"edit them, {'look over' if given.like else 'fill in'} HEADER, then: {follow}")
    out.document({"schema": "moet.patch-new.v1", "patch": name, "folder": str(target), "told": told, "next": follow})
    return 0


VERB = Verb(
    summary="begin a patch: take files out of the pinned wheel, with a header to fill in",
    description=(
        "Writes the files, as the series leaves them, into a work folder, and HEADER beside them. Nothing that lies "
        "there already is overwritten. After the edit, `moet patch refresh NAME --from DIR` makes the patch and lists "
        "it. With --like, a patch for another version is taken up: what of it applies is applied, the rest is named."
    ),
    arguments=_arguments,
    run=_run,
    examples=(
        ("patch new my-change vllm/version.py", "a new patch with a step of its own"),
        ("patch new native-next-n --series vllm-0.34.0 --like patches/vllm-0.33.0/native-next-n.patch", "mend one"),
    ),
)
