"""The step that changes a command's verdict between two releases."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from images.manifest import model
from releases.bisect import verdict
from releases.bisect.log import Log
from releases.bisect.plan import Plan
from releases.bisect.search import search
from releases.bisect.subjects import Subjects
from releases.bisect.verdict import Judgement, Subject, Verdict
from releases.tree import build
from tools.cli.errors import UserError

# How a state comes about.
GOOD_IMAGE = "good image"
SWITCHES = "switches"
REBUILT = "rebuilt"


@dataclass(frozen=True)
class Trial:
    """One judged image; `again`: to confirm what was found; `known`: from the log of an earlier run."""

    how: str
    state: int
    steps: tuple[int, ...]
    off: tuple[str, ...]
    judgement: Judgement
    again: bool = False
    known: bool = False


@dataclass
class Result:
    """What came of a bisect.

    Attributes:
        trials: what was judged, in order.
        suspects: the steps between which the verdict changes: one that was found, several where those between could
            not be judged, none where the difference lies outside the steps.
        how: SWITCHES or REBUILT.
        steady: whether the verdicts on both sides of the step were the same when asked again.
    """

    trials: list[Trial] = field(default_factory=list)
    suspects: tuple[model.Step, ...] = ()
    how: str = SWITCHES
    steady: bool = True

    @property
    def found(self) -> model.Step | None:
        """The one step; None where there is not exactly one, or the verdicts were not steady."""
        return self.suspects[0] if len(self.suspects) == 1 and self.steady else None


class Bisect:
    """One bisect: `command` judges the images of `subjects`."""

    def __init__(
        self,
        plan: Plan,
        subjects: Subjects,
        command: Sequence[str],
        log: Log,
        *,
        repeat: int = 1,
        environment: Mapping[str, str] = os.environ,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Takes its parts; `note` is told what goes on."""
        self._plan = plan
        self._subjects = subjects
        self._command = command
        self._log = log
        self._repeat = repeat
        self._environment = environment
        self._note = note
        self._result = Result()

    def run(self) -> Result:
        """Judges both ends, then what lies between.

        Raises UserError where an end is not what it is said to be, or an image cannot be had.
        """
        plan, result = self._plan, self._result
        self._end("good", plan.good.tag, self._judge(GOOD_IMAGE, 0), Verdict.GOOD)
        self._end("bad", plan.bad.tag, self._judge(SWITCHES, plan.count), Verdict.BAD)
        lowest = plan.switchable_from
        if lowest < plan.count and self._judge(SWITCHES, lowest) is Verdict.GOOD:
            self._narrow(SWITCHES, lowest)
        elif plan.count and self._builds():
            lowest_verdict = self._judge(REBUILT, 0)
            if lowest_verdict is Verdict.GOOD:
                self._narrow(REBUILT, 0)
            elif lowest_verdict is Verdict.UNKNOWN:
                result.suspects, result.how, result.steady = plan.suspects, REBUILT, plan.count > 1
        return result

    def _builds(self) -> bool:
        if self._subjects.can_build:
            return True
        what = ", ".join(f"{step.number} {step.name}" for step in self._plan.suspects)
        raise UserError(
            f"switches alone do not make {self._plan.bad.tag} good, and without Moet's source tree nothing can be "
            f"built to tell the steps {what} apart: go into one or name it with --tree DIR"
        )

    def _narrow(self, how: str, lowest: int) -> None:
        plan, result = self._plan, self._result
        bounds = search(lowest, plan.count, lambda state: self._judge(how, state))
        result.suspects, result.how = plan.suspects[bounds.good : bounds.bad], how
        if len(result.suspects) == 1:
            sides = [(bounds.good, Verdict.GOOD), (bounds.bad, Verdict.BAD)]
            result.steady = all(self._judge(how, state, again=True) is wanted for state, wanted in sides)

    def _end(self, name: str, tag: str, found: Verdict, wanted: Verdict) -> None:
        if found is not wanted:
            statuses = ", ".join(map(str, self._result.trials[-1].judgement.statuses))
            raise UserError(
                f"--{name} {tag}: COMMAND says {found.value} (exit status {statuses}), {wanted.value} was expected: "
                "it must exit with 0 on the good image and with 1 to 124 on the bad one"
            )

    def _judge(self, how: str, state: int, again: bool = False) -> Verdict:
        plan = self._plan
        # The bad image itself is the last state, whichever way the others come about.
        how = SWITCHES if how == REBUILT and state == plan.count else how
        key = f"{how}, again" if again else how
        judgement = self._log.get(key, state)
        known = judgement is not None
        if judgement is None:
            try:
                subject = self._subject(how, state)
            except build.BuildError as error:
                # Steps that need those taken out do not build without them, which says nothing of COMMAND.
                if how != REBUILT:
                    raise
                self._note(f"{self._describe(how, state)}: {error}")
                judgement = Judgement(Verdict.UNKNOWN, ())
            else:
                self._note(f"{self._describe(how, state)}: {_brief(subject.words(self._command))}")
                judgement = verdict.judge(self._command, subject, self._environment, self._repeat)
            self._log.add(key, state, judgement)
        self._note(f"{self._describe(how, state)}: {judgement.verdict.value}{' (from the log)' if known else ''}")
        off = () if how == GOOD_IMAGE else tuple(step.switch or step.name for step in plan.off(state))
        steps = tuple(step.number for step in plan.good.steps) if how == GOOD_IMAGE else plan.live(state)
        self._result.trials.append(Trial(how, state, steps, off, judgement, again, known))
        return judgement.verdict

    def _subject(self, how: str, state: int) -> Subject:
        if how == GOOD_IMAGE:
            return self._subjects.good()
        return self._subjects.switched(state) if how == SWITCHES else self._subjects.rebuilt(state)

    def _describe(self, how: str, state: int) -> str:
        if how == GOOD_IMAGE:
            return str(self._plan.good.tag)
        off = ", ".join(str(step.number) for step in self._plan.off(state))
        return f"{self._plan.bad.tag}" + (f" without step {off} ({how})" if off else "")


def _brief(words: Sequence[str]) -> str:
    text = " ".join(shlex.join(words).split())
    return text if len(text) <= 100 else text[:97] + "..."


def open_log(path: Path | None, plan: Plan, digests: tuple[str, str], command: Sequence[str], **more: object) -> Log:
    """The log of this bisect: verdicts of one over other images, with another COMMAND or switches are not mixed in."""
    subject = {"good": digests[0], "bad": digests[1], "command": list(command), **more}
    subject["switches"] = {one.name: os.environ[one.name] for one in plan.bad.switches if one.name in os.environ}
    return Log(path, subject)
