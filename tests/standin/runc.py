#!/usr/bin/python3 -IS
"""runc, for hosts that may not raise limits: what a container asks for beyond them is cut to them.

A profile asks for unlimited locked memory, which root may only give where it has CAP_SYS_RESOURCE.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> None:
    """Edits what `runc create` and `runc exec` are told of the process, and becomes runc."""
    if "create" in arguments:
        bundle = Path(arguments[arguments.index("--bundle") + 1], "config.json")
        config = json.loads(bundle.read_text())
        _cut(config["process"])
        bundle.write_text(json.dumps(config))
    elif "--process" in arguments:
        file = Path(arguments[arguments.index("--process") + 1])
        process = json.loads(file.read_text())
        _cut(process)
        file.write_text(json.dumps(process))
    os.execvp("runc", ["runc", *arguments])


def _cut(process: dict[str, Any]) -> None:
    for limit in process.get("rlimits") or ():
        _, hard = resource.getrlimit(getattr(resource, limit["type"]))
        if hard != resource.RLIM_INFINITY:
            limit["hard"], limit["soft"] = min(limit["hard"], hard), min(limit["soft"], hard)


main(sys.argv[1:])
