"""What COMMAND says of an image, by its exit status, as `git bisect run` has it."""

import enum
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.cli.errors import UserError

_CANNOT_TELL = 125


class Verdict(enum.Enum):
    """The value is the word for it."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Subject:
    """What COMMAND is to judge.

    Attributes:
        image: what `docker run` takes.
        layout: folder of the OCI layout (or what --target made), where one was built.
        switches: environment that the image is to run with.
        steps: numbers of the live steps.
    """

    image: str
    layout: Path | None
    switches: Mapping[str, str]
    steps: tuple[int, ...]

    @property
    def run_arguments(self) -> list[str]:
        """`switches` as arguments of `docker run`."""
        return [word for name, value in sorted(self.switches.items()) for word in ("-e", f"{name}={value}")]

    @property
    def environment(self) -> dict[str, str]:
        """What COMMAND finds in its environment."""
        return {
            **self.switches,
            "MOET_IMAGE": self.image,
            "MOET_LAYOUT": str(self.layout or ""),
            "MOET_ENV": shlex.join(self.run_arguments),
            "MOET_STEPS": " ".join(map(str, self.steps)),
        }

    def words(self, command: Sequence[str]) -> list[str]:
        """COMMAND with {image}, {layout} and {env} replaced; a word that is {env} becomes as many as it takes."""
        result: list[str] = []
        for word in command:
            if word == "{env}":
                result += self.run_arguments
                continue
            for name, value in (("env", "MOET_ENV"), ("image", "MOET_IMAGE"), ("layout", "MOET_LAYOUT")):
                word = word.replace(f"{{{name}}}", self.environment[value])
            result.append(word)
        return result


@dataclass(frozen=True)
class Judgement:
    """COMMAND's verdict and the exit statuses that it rests on."""

    verdict: Verdict
    statuses: tuple[int, ...]


def judge(command: Sequence[str], subject: Subject, environment: Mapping[str, str], repeat: int) -> Judgement:
    """Runs COMMAND up to `repeat` times, until more than half of them agree. Its stdout goes to stderr.

    Without a majority the verdict is UNKNOWN. Raises UserError where COMMAND cannot be run, or ended with a status
    above 125 or by a signal: a test that is broken says nothing of an image.
    """
    statuses: list[int] = []
    verdicts: list[Verdict] = []
    words = subject.words(command)
    for _ in range(repeat):
        statuses.append(_status(words, {**environment, **subject.environment}))
        verdicts.append(_verdict(statuses[-1], words))
        for verdict in Verdict:
            if verdicts.count(verdict) * 2 > repeat:
                return Judgement(verdict, tuple(statuses))
    return Judgement(Verdict.UNKNOWN, tuple(statuses))


def _status(words: Sequence[str], environment: Mapping[str, str]) -> int:
    sys.stderr.flush()
    try:
        done = subprocess.run(words, env=dict(environment), stdin=subprocess.DEVNULL, stdout=2, check=False)
    except OSError as error:
        raise UserError(f"COMMAND {words[0]}: {error.strerror}: give a program and its arguments after --") from None
    except ValueError as error:
        raise UserError(f"COMMAND {words[0]!r}: {error}") from None
    return done.returncode


def _verdict(status: int, words: Sequence[str]) -> Verdict:
    if status < 0:
        raise UserError(f"COMMAND {words[0]}: was ended by signal {-status}; a verdict is an exit status up to 125")
    if status > _CANNOT_TELL:
        more = "sh found no such program" if status == 127 else "a verdict is an exit status up to 125"
        raise UserError(f"COMMAND {words[0]}: exit status {status}: {more}; mend COMMAND and run this again")
    return {0: Verdict.GOOD, _CANNOT_TELL: Verdict.UNKNOWN}.get(status, Verdict.BAD)
