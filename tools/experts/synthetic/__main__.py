"""python3 -m tools.experts.synthetic MODEL DIR: writes a made-up checkpoint."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.cli.errors import UserError
from tools.experts.synthetic.models import MODELS
from tools.experts.synthetic.synthetic import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line, by default the program's own; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.experts.synthetic", description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("path", type=Path, metavar="DIR")
    for name, usual in (("layers", 2), ("experts", 4), ("hidden", 512), ("intermediate", 256), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=usual, metavar="N", help=f"default: {usual}")
    parser.add_argument("--drafter", action="store_true", help="a drafter's layer, mtp.0, too")
    options = parser.parse_args(arguments)
    given = {key: value for key, value in vars(options).items() if key not in ("path", "model")}
    try:
        write(options.path, options.model, **given)
    except UserError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"{parser.prog}: {error.filename or options.path}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
