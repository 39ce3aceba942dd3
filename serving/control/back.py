"""The way back from a change that cannot be completed, to what ran before."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from images.engine.errors import EngineError
from serving.control.fleet import Member
from serving.control.ground import Ground, words
from serving.generations.generation import Generation, now
from tools.cli.errors import UserError

NOTHING_SERVES = 3
# How often, and after how many seconds each time, an engine that is away is asked again: its daemon may be restarted.
_TRIES, _TRY_SECONDS = 60, 2.0
# An engine that answers and refuses will refuse again; a command that insisted could never be got past.
_REFUSALS = 3


class ChangeError(UserError):
    """A change that was given up. `status` is 1 where what ran before serves, NOTHING_SERVES, or 130 for Ctrl-C."""

    def __init__(self, line: str, status: int = 1) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Ended:
    """How the way back ended: in words, and whether anything serves."""

    line: str
    serves: bool


class Back:
    """The way back on some ground; `sleep` waits some seconds."""

    def __init__(self, ground: Ground, sleep: Callable[[float], None] = time.sleep) -> None:
        self._ground = ground
        self._sleep = sleep

    def give_up(self, why: str) -> Ended:
        """Goes back from the target of the operation under way; an engine that is away for a while is waited for.

        Raises ChangeError where it stays away, or the state cannot be written; KeyboardInterrupt. The journal then has
        the next command go on with it.
        """
        ground, refusals = self._ground, 0
        for number in range(_TRIES):
            try:
                return self._discard(why) if ground.server.under_way.phase == "creating" else self._go_back(why)
            except KeyboardInterrupt:
                ground.out.note("left in the middle of going back: `moet serve up` goes on with it")
                raise
            except OSError as error:
                raise _stuck(why, error) from None
            except EngineError as error:
                last = error
            refusals += self._answers()
            if refusals == _REFUSALS:
                break
            if number == 0:
                ground.out.note(f"{last}: trying again, to go back")
            self._sleep(_TRY_SECONDS)
        if refusals < _REFUSALS or ground.server.under_way.phase == "creating":
            raise _stuck(why, last)
        return self._not_back(why, last)

    def returning(self, why: str) -> None:
        """Keeps the last output of what did not become ready, and has the journal say that it is gone back from."""
        ground = self._ground
        operation = ground.server.under_way
        if operation.phase == "returning":
            return
        failed = {"starting": ground.fleet.serving, "tuning": self._tuning}.get(operation.phase, lambda: None)()
        log = ground.save(failed, why) if failed and failed.generation == operation.target else None
        server = ground.server.at_phase("returning", why, log)
        try:
            ground.write(server)
        except OSError as error:
            # The phase before leads to the same end; serving again matters more than saying so.
            ground.out.note(words(error))
            ground.server = server

    def _discard(self, why: str) -> Ended:
        """What runs was not touched; only the new container goes."""
        ground = self._ground
        target, new = ground.server.under_way.target, f"{ground.server.name}.new"
        ground.remove(lambda one: one.generation == target and one.state.name == new)
        ground.write(ground.server.failed(why, None, now()))
        member = ground.fleet.serving()
        if member is None or not member.live:
            return Ended("nothing was started, nothing serves", serves=False)
        return Ended(f"generation {member.generation} was left as it is", serves=True)

    def _go_back(self, why: str) -> Ended:
        """Removes what is of the target, and starts what ran before."""
        ground = self._ground
        self.returning(why)
        operation = ground.server.under_way
        ground.remove(lambda one: one.generation != operation.back or one.tuning)
        if operation.back is None:
            ground.write(ground.server.failed(why, operation.log, now()))
            return Ended("nothing ran before, nothing serves now", serves=False)
        try:
            self._bring_back(ground.server.generation(operation.back), why)
        except EngineError:
            raise
        except UserError as error:
            ground.save(ground.fleet.of(operation.back), str(error))
            return self._not_back(why, error)
        serves = f"generation {operation.back} serves again"
        try:
            ground.write(ground.server.failed(why, operation.log, now()))
        except OSError as error:
            text = f"{why}; {serves}, and that cannot be recorded: {words(error)}; free some space there, and"
            raise ChangeError(f"{text} `moet serve up` records it") from None
        return Ended(serves, serves=True)

    def _bring_back(self, before: Generation, why: str) -> None:
        """Starts what ran before and waits for it. Raises NotReadyError, EngineError; UserError without its key."""
        ground = self._ground
        member = ground.fleet.of(before.number)
        if member is None:
            container = ground.fleet.create(before, "previous", ground.secret(before.launch))
        else:
            container = member.container
        ground.fleet.call(container)
        if member and member.live and ground.starting.ready(container, before):
            return
        ground.out.note(f"{why}: going back to generation {before.number}")
        ground.start(container, before, first=False)

    def _not_back(self, why: str, error: UserError) -> Ended:
        """The operation is over, and nothing serves: another one may be begun."""
        ground = self._ground
        operation = ground.server.under_way
        ground.write(ground.server.failed(why, operation.log, now()))
        return Ended(f"generation {operation.back} did not come back: {error}; nothing serves now", serves=False)

    def _answers(self) -> bool:
        try:
            self._ground.fleet.members()
        except EngineError:
            return False
        return True

    def _tuning(self) -> Member | None:
        return next((one for one in self._ground.fleet.members() if one.tuning), None)


def _stuck(why: str, error: Exception) -> ChangeError:
    text = f"{why}; going back was not possible: {words(error)}; `moet serve up` goes on with it"
    return ChangeError(text, NOTHING_SERVES)
