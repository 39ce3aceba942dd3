"""A launch as a shell script that starts its container with Docker."""

import shlex

from serving.launch import docker_command
from serving.launch.key import VARIABLE
from serving.launch.launch import Launch
from serving.render.file import File

_HEAD = """#!/bin/sh
# Made by `moet serve render {line} --form docker`. Starts {title}{node}.
set -eu
"""


def render(launches: list[Launch]) -> list[File]:
    """One script a host."""
    return [File(f"{launch.host_name}.sh", text(launch), executable=True) for launch in launches]


def text(launch: Launch) -> str:
    """The script of one host."""
    node = f", host {launch.node.rank} of {launch.node.count}" if launch.node.count > 1 else ""
    head = _HEAD.format(line=launch.line, title=launch.title, node=node)
    return f"{head}{guard(launch)}exec {command(launch)}\n"


def command(launch: Launch) -> str:
    """`docker run`, as a shell takes it, one option a line."""
    words = [shlex.quote(word) for word in docker_command.run(launch, "--detach")]
    return " \\\n    ".join([" ".join(words[:2]), *words[2:]])


def guard(launch: Launch) -> str:
    """A line that ends a script where the key that it would take from the environment is not there."""
    wanted = launch.key is not None and launch.key.file is None and launch.api
    return f': "${{{VARIABLE}:?is not set: the server would answer anyone}}"\n' if wanted else ""
