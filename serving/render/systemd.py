"""A launch as a systemd unit that runs its container with Docker."""

import re

from serving.launch import docker_command
from serving.launch.key import VARIABLE
from serving.launch.launch import Launch
from serving.render.file import File
from tools.cli.errors import UserError

_PROGRAM = "/usr/bin/docker"
_PLAIN = re.compile(r"[A-Za-z0-9_@:,./=+-]+")
_STOP_SECONDS = 60

# Statuses of the image's entry point that another start would only repeat: usage, attestation, self-test.
_UNIT = """# Made by `moet serve render {line} --form systemd`.
[Unit]
Description={title}{node}
Requires=docker.service
After=docker.service network-online.target
Wants=network-online.target
StartLimitIntervalSec=6h
StartLimitBurst=5

[Service]
Type=exec
ExecStartPre=-{program} rm --force {name}
ExecStart={command}
ExecStop={program} stop --time {stop} {name}
TimeoutStopSec={wait}
Restart=on-failure
RestartSec=30
RestartPreventExitStatus=2 3 4 5

[Install]
WantedBy=multi-user.target
"""


def render(launches: list[Launch]) -> list[File]:
    """One unit a host. Raises UserError where the API key would have to come from a shell's environment."""
    return [File(f"{launch.host_name}.service", text(launch)) for launch in launches]


def text(launch: Launch) -> str:
    """The unit of one host. Raises UserError as render()."""
    if launch.key is not None and launch.key.file is None:
        raise UserError(f"a unit does not see {VARIABLE} of your shell: write it to a file and set API_KEY_FILE")
    words = [quote(word) for word in docker_command.run(launch, "--rm", program=_PROGRAM)]
    node = f", host {launch.node.rank} of {launch.node.count}" if launch.node.count > 1 else ""
    return _UNIT.format(
        line=launch.line,
        title=launch.title.replace("%", "%%"),
        node=node,
        program=_PROGRAM,
        name=launch.name,
        command=" \\\n    ".join([" ".join(words[:2]), *words[2:]]),
        stop=_STOP_SECONDS,
        wait=_STOP_SECONDS + 30,
    )


def quote(word: str) -> str:
    """A word of an Exec line (systemd.service, "Command lines"): quoted, escaped, no specifier, no variable."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = "".join(_escape(mark) for mark in word)
    return f'"{escaped}"'


def _escape(mark: str) -> str:
    if mark in ("%", "$"):
        return mark * 2
    if mark in ('"', "\\"):
        return f"\\{mark}"
    return f"\\x{ord(mark):02x}" if ord(mark) < 32 or ord(mark) == 127 else mark
