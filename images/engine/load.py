"""Load an image of an OCI layout into a container engine, sending only the layers that it lacks."""

import argparse
import sys
import time
from pathlib import Path

from images.engine import layout, reference
from images.engine.opening import add_arguments, open_engine
from images.engine.result import LoadResult
from tools.cli.errors import UserError
from tools.cli.output import Output

SCHEMA = "moet.image-load.v1"


def load_layout(
    directory: Path, ref: str | None, name: str | None, kind: str | None, host: str | None, out: Output
) -> LoadResult:
    """Loads the image that the layout calls `ref` (None: its only one) as `name` (None: as the layout calls it).

    `kind` and `host` choose the engine as open_engine does. Prints what was done.

    Raises:
        EngineError: no such image or engine, a name that is none, or the engine refused.
    """
    start = time.monotonic()
    image = layout.read(directory, ref)
    wanted = reference.parse(name or ref or image.full_name or "")
    engine = open_engine(kind, host)
    try:
        with out.progress() as bar:
            result = engine.load(image, wanted, bar)
    finally:
        engine.close()
    seconds = time.monotonic() - start
    for line in result.lines(seconds):
        out.line(line)
    out.document({"schema": SCHEMA, **result.document(seconds)})
    return result


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help="directory of the OCI image layout")
    parser.add_argument("--ref", required=True, help="the image's name in the layout, NAME:TAG")
    parser.add_argument("--name", help="the name it gets in the engine (default: --ref)")
    add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    options = parser.parse_args(arguments)
    try:
        out = Output(options.json)
        load_layout(options.layout, options.ref, options.name, options.engine, options.host, out)
    except UserError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("load: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
