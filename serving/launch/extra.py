"""Arguments that a person adds to those of the profile, held against what the launcher decides."""

import re
from collections.abc import Collection, Iterable, Sequence

from serving.launch.key import VARIABLE
from tools.cli.errors import UserError

# What decides who reaches the server, or which process of several it is.
_OWN = (
    "--api-key",
    "--config",
    "--headless",
    "--host",
    "--master-addr",
    "--master-port",
    "--model",
    "--nnodes",
    "--node-rank",
    "--port",
    "--uds",
)
# vLLM's short names of flags that are the launcher's or a knob's.
_SHORT = {"-dp": "--data-parallel-size", "-n": "--nnodes", "-r": "--node-rank", "-tp": "--tensor-parallel-size"}
_DOCKER = ("--name", "--net", "--network", "--publish", "--publish-all", "--env-file", "--rm", "--detach", "--restart")
_DOCKER_SHORT = re.compile(r"-[dit]*[pPd].*")


def check_arguments(knob: str, words: Sequence[str], flags: Iterable[str]) -> None:
    """Refuses what `flags` (of the profile) or the launcher already pass; `knob` names the words in messages.

    vLLM takes unambiguous beginnings of a flag for the flag, `_` for `-`, and FLAG.KEY for a key of its JSON value.
    """
    taken = {*flags, *_OWN}
    for word in words:
        name = re.split(r"[=.]", word, maxsplit=1)[0].replace("_", "-")
        name = _SHORT.get(name, name)
        # A short flag's number may follow it directly.
        name = next((_SHORT[short] for short in _SHORT if re.fullmatch(rf"{short}[0-9]+", name)), name)
        if hit := _beginning(name, taken):
            what = word.partition("=")[0]
            raise UserError(f"{knob}: {what}: {hit} is set by Moet: use the knob or option that sets it")


def check_docker(knob: str, words: Sequence[str]) -> None:
    """Refuses options of docker run that would open the server to others, rename it, or show its key."""
    for word in words:
        name = word.partition("=")[0]
        if name in _DOCKER or (_DOCKER_SHORT.fullmatch(word) and not word.startswith("--")):
            raise UserError(f"{knob}: {name}: is set by Moet: use BIND, PORT, NAME or API_KEY_FILE")
        if VARIABLE in word:
            raise UserError(f"{knob}: {VARIABLE}: would be seen in process lists: use API_KEY_FILE")


def _beginning(name: str, taken: Collection[str]) -> str | None:
    if not name.startswith("--") or name == "--":
        return None
    return name if name in taken else next((flag for flag in sorted(taken) if flag.startswith(name)), None)
