"""Starts the program of an archive, or says which Python it needs; this file also parses on Python 2."""

import sys

ENTRY = "@ENTRY@"
NAME = "@NAME@"
LEFT_OUT = "@LEFT_OUT@"
LEAST = (3, 11)


def main():  # type: ignore[no-untyped-def]
    """Returns the exit status of the program, or 1 after one line on an interpreter that is too old."""
    if sys.version_info[:2] < LEAST:
        found = "%d.%d at %s" % (sys.version_info[0], sys.version_info[1], sys.executable)  # noqa: UP031
        wanted = "Python %d.%d or newer" % LEAST  # noqa: UP031
        sys.stderr.write("%s: needs %s, this is %s; run it with one: python3.11 %s ...\n" % (NAME, wanted, found, NAME))  # noqa: UP031
        return 1
    # What was written into the file is all that it reads: no bytecode beside it, no packages of the host before it.
    sys.dont_write_bytecode = True
    import importlib

    module, _, function = ENTRY.partition(":")
    try:
        return getattr(importlib.import_module(module), function)()
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        if package not in LEFT_OUT.split():
            raise
        need = "needs the package %s, which a file of pure Python cannot hold" % package  # noqa: UP031
        advice = "run it in Moet's source tree: bazel run //tools/moet -- ..."
        sys.stderr.write("%s: %s; %s\n" % (NAME, need, advice))  # noqa: UP031
        return 1


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[no-untyped-call]
