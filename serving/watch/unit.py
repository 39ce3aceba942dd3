"""The systemd unit of a watchdog."""

import os
import pwd
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.render.systemd import quote
from tools.cli.errors import UserError

GAVE_UP = 3
_PASSED = ("DOCKER_HOST", "XDG_STATE_HOME")

# What a look may take at most is below WatchdogSec: a token, a stop, a log.
_UNIT = """# Made by `moet serve watch --unit`.
[Unit]
Description=Watchdog of the model server {name}
After=docker.service network-online.target
Wants=docker.service network-online.target
StartLimitIntervalSec=1h
StartLimitBurst=10

[Service]
Type=notify
ExecStart={command}
User={user}
{environment}WatchdogSec=600
TimeoutStartSec=300
TimeoutStopSec=120
SuccessExitStatus=143
Restart=on-failure
RestartSec=30
RestartPreventExitStatus=2 {gave_up}

[Install]
WantedBy=multi-user.target
"""


def text(name: str, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """The unit.

    Args:
        name: of the server or container.
        words: of the command, the program first.
        environment: whose DOCKER_HOST and XDG_STATE_HOME the watchdog keeps.
    """
    # Other than in a command, no variable is looked for here.
    passed = [quote(f"{one}={environment[one]}").replace("$$", "$") for one in _PASSED if environment.get(one)]
    return _UNIT.format(
        name=name.replace("%", "%%"),
        command=" ".join(quote(word) for word in words),
        user=pwd.getpwuid(os.getuid()).pw_name,
        environment="".join(f"Environment={word}\n" for word in passed),
        gave_up=GAVE_UP,
    )


def program(started: str) -> list[str]:
    """The words that run moet as this process was started, by sys.argv[0]. Raises UserError where a unit could not."""
    path = Path(started).absolute()
    if not zipfile.is_zipfile(path):
        raise UserError("--unit: a unit needs moet as one file: `bazel build //tools/moet:archive`, then run moet.pyz")
    return [sys.executable, str(path)]
