"""What the layer writers' command lines share: arguments, outputs, and one line on bad input."""

import argparse
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from images.oci import layer


def parser() -> argparse.ArgumentParser:
    """Returns a parser with --name, --comment, --mtime (seconds) and --out (a path without ending)."""
    made = argparse.ArgumentParser(fromfile_prefix_chars="@")
    made.add_argument("--name", required=True)
    made.add_argument("--comment", default="")
    made.add_argument("--mtime", type=int, required=True)
    made.add_argument("--out", required=True)
    return made


def write(args: argparse.Namespace, fill: Callable[[layer.LayerWriter], None]) -> int:
    """Lets `fill` write the layer's entries, then writes PREFIX.tar.gz, .json and .files.json.

    Returns the exit status: 1, with one line on stderr and no output left, on bad content.
    """
    try:
        with layer.LayerWriter(Path(args.out + ".tar.gz"), args.mtime) as out:
            fill(out)
            made = out.close(args.name, args.comment)
    except (layer.LayerError, zipfile.BadZipFile) as error:
        print(f"layer {args.name}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        # A full disk does not say which file it could not take.
        print(f"layer {args.name}: {error.filename or args.out + '.tar.gz'}: {error.strerror}", file=sys.stderr)
        return 1
    layer.write_descriptor(made, Path(args.out + ".json"))
    layer.write_listing(out.entries, Path(args.out + ".files.json"))
    return 0
