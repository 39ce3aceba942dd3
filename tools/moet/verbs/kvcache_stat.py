"""moet kvcache stat."""

import argparse
import time
from pathlib import Path

from serving.kvcache import survey, tier, wording
from tools.cli.output import Output
from tools.moet.verb import Verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the tier's folder")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    with tier.opened(options.directory) as opened:
        with out.progress() as bar:
            found = survey.surveys(opened, time.time(), bar)
        out.document(survey.document(opened, found))
        wording.show_surveys(found, out)
        wording.show_faults(opened.faults, out)
        return 3 if opened.faults.count or any(len(each.sizes) > 1 for each in found) else 0


VERB = Verb(
    summary="show size, age and format of the blocks in a KV disk tier",
    description="""One row for each folder of the engine's: the format that its config.json states, the tokens and bytes
of a block, how many blocks there are, and how much of them was last used within an hour, a day, three days, a week or
before.

vLLM's name of a folder, and its config.json, do not say the format of the indexer's keys. So blocks of two formats can
meet in one folder, and the engine would load one as the other. They differ in size, and that is told here.""",
    arguments=add_arguments,
    run=run,
    examples=(("kvcache stat /srv/kv", "what the tier holds"),),
    exits=((3, "something could not be read, or a folder has blocks of several sizes; lines below say what"),),
)
