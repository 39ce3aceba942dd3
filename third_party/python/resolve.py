"""Prints the address of one distribution file, as the host's pip finds it.

usage: resolve.py PROJECT VERSION FILE

Asks `pip index versions -vv`, whose log names each link that the configured indexes offer, also
those that the running interpreter could not install; no index address stands in this repository.
Exits 1 with one line on stderr when the file is not offered, and says which versions are.
"""

import re
import subprocess
import sys

_LINK = re.compile(r"(?:Found link|Skipping link: .*?:) ((?:https?|file)://[^\s#]+)")
_TROUBLE = re.compile(r"Could not fetch URL .*\(Caused by (.*)\)", re.MULTILINE)
_VERSIONS = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def find(log: str, file: str) -> str | None:
    """Returns the address whose last part is `file` in pip's log, or None."""
    for address in _LINK.findall(log):
        if address.rpartition("/")[2].replace("%2B", "+") == file:
            return str(address)
    return None


def missing(log: str, project: str, version: str, file: str) -> str:
    """Returns the one line that says what is offered in place of `file`."""
    versions = _VERSIONS.search(log)
    trouble = _TROUBLE.search(log)
    if trouble is not None and versions is None:
        return f"{file}: pip could not ask the index for {project}: {trouble.group(1)[:200]}."
    if versions is None:
        last = log.strip().splitlines()[-1:] or ["nothing"]
        return f"{file}: pip found no release of {project}; it said: {last[0]}."
    offered = versions.group(1).split(", ")
    if version in offered:
        return f"{file}: the index has {project} {version}, but not this file of it."
    return f"{file}: the index no longer offers {project} {version}; it offers {', '.join(offered[:5])}."


def main() -> int:
    """Runs the command line above."""
    project, version, file = sys.argv[1:]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "-vv", project],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    address = find(done.stdout, file)
    if address is None:
        print(missing(done.stdout, project, version, file), file=sys.stderr)
        return 1
    print(address)
    return 0


if __name__ == "__main__":
    sys.exit(main())
