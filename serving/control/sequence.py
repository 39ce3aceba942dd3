"""From one generation to another: stop, start, check, or back. Every step is in the journal before it is done.

There is no GPU memory for two servers at once, so what runs is stopped before the next one starts; it is kept, under
another name, until that one is ready. Whoever finds the journal of an interrupted change settles it (settle()): by the
journal's phase and by what the engine has, and not by what a process remembered.
"""

import time
from collections.abc import Callable

from images.engine.errors import EngineError
from serving.control.back import NOTHING_SERVES, Back, ChangeError
from serving.control.fleet import Fleet
from serving.control.ground import Ground, words
from serving.control.parts import Handle, NotReadyError
from serving.generations.generation import Generation, now
from serving.generations.server import Server
from tools.cli.errors import UserError

_INTERRUPTED = 130


class Sequence:
    """Changes of one server. Whoever uses it holds the server's lock; `sleep` waits some seconds.

    Every method raises EngineError where the engine stops answering, and OSError where the journal cannot be
    written; the next command settles what is left then.
    """

    def __init__(self, ground: Ground, sleep: Callable[[float], None] = time.sleep) -> None:
        self._ground = ground
        self._back = Back(ground, sleep)

    @property
    def server(self) -> Server:
        """The state as it is now."""
        return self._ground.server

    @property
    def fleet(self) -> Fleet:
        """The server's containers."""
        return self._ground.fleet

    def replace(self, generation: Generation) -> None:
        """Serves a new generation in place of what runs.

        Raises ChangeError where it did not become ready: what ran before serves again then, or nothing does.
        """
        self.fleet.refuse_strangers(self.server.running)
        self._ground.write(self.server.staged(generation, now()))
        self._carry_out()

    def start_again(self) -> None:
        """Serves the running generation once more, in a container of its own. Raises ChangeError."""
        self.fleet.refuse_strangers(self.server.running)
        self._ground.write(self.server.starting_again(now()))
        self._carry_out()

    def down(self) -> None:
        """Stops the server and removes its containers, also those of an interrupted operation."""
        self._ground.write(self.server.going_down(now()))
        self._remove_all()

    def settle(self) -> str | None:
        """Ends an operation that was interrupted; returns in one line how, None where there was none.

        A new container that runs is waited for; where it does not become ready, or does not run, what ran before is
        started again.
        """
        operation = self.server.operation
        if operation is None:
            return None
        what = f"generation {operation.target}" if operation.target else "down"
        since = f"{what}, {operation.phase}, since {operation.at}"
        self._ground.out.note(f"an operation was interrupted ({since}): settling it")
        if operation.phase == "removing":
            self._remove_all()
            return "the server is down"
        if operation.phase == "cleaning":
            self._clean()
            return f"{what} serves"
        try:
            why = operation.why or self._not_up()
        except KeyboardInterrupt:
            ended = self._back.give_up("interrupted")
            raise ChangeError(f"{what}: interrupted; {ended.line}", _INTERRUPTED) from None
        if why:
            return f"{what}: {why}; {self._back.give_up(why).line}"
        self._commit()
        return f"{what} became ready and serves"

    def _carry_out(self) -> None:
        ground = self._ground
        generation = ground.target
        try:
            key = ground.secret(generation.launch)
            container = self.fleet.create(generation, "new", key)
            reasons = ground.starting.reasons(container, generation)
            ground.phase("stopping")
            self._put_aside(container)
            if reasons:
                ground.out.note(f"first start of generation {generation.number}: {'; '.join(reasons)}")
            if reasons and generation.tuning:
                self._fill_caches(generation, key)
            ground.phase("starting")
            self.fleet.call(container)
            ground.start(container, generation, first=bool(reasons) and generation.tuning is None)
        except (Exception, KeyboardInterrupt) as error:
            why = words(error)
            ended = self._back.give_up(why)
            if not isinstance(error, UserError | OSError | KeyboardInterrupt):
                # A fault of this program's: it is gone back from all the same.
                raise
            status = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1 if ended.serves else NOTHING_SERVES
            raise ChangeError(f"generation {generation.number}: {why}; {ended.line}", status) from None
        self._commit()

    def _put_aside(self, container: Handle) -> None:
        """What runs is called NAME.previous, and runs on until the next one is started; what else is there goes."""
        ground, back = self._ground, self.server.under_way.back
        others = [one for one in self.fleet.members() if one.container.id != container.id]
        for member in sorted(others, key=lambda one: one.generation == back):
            if member.generation == back:
                self.fleet.call(member.container, "previous")
            else:
                ground.save(member, "was not ready any more")
                self.fleet.remove(member)

    def _fill_caches(self, generation: Generation, key: str | None) -> None:
        """A container of its own, which leaves more memory to tuning, runs until it is ready."""
        self._ground.phase("tuning")
        container = self.fleet.create(generation, "tuning", key)
        self._ground.start(container, generation, first=True)
        self._ground.remove(lambda one: one.tuning)

    def _not_up(self) -> str | None:
        """Why the target of an interrupted operation does not serve; None where it does, at the latest after a wait."""
        ground, generation, member = self._ground, self._ground.target, self.fleet.serving()
        phase = self.server.under_way.phase
        if member is None or not member.live or member.generation != generation.number:
            return f"interrupted ({phase})"
        if ground.starting.ready(member.container, generation):
            return None
        if phase != "starting":
            return f"interrupted ({phase})"
        try:
            ground.wait(member.container, generation, first=generation.tuning is None)
        except NotReadyError as error:
            return str(error)
        return None

    def _commit(self) -> None:
        """The target is the running generation; only then is what ran before removed."""
        number = self._ground.target.number
        try:
            self._ground.write(self.server.served())
        except OSError as error:
            what = f"generation {number} serves, and that cannot be recorded: {words(error)}"
            raise ChangeError(f"{what}; free some space there, and `moet serve up` records it") from None
        try:
            self._clean()
        except EngineError as error:
            text = f"generation {number} serves; what is left of others is removed next time: {error}"
            self._ground.out.note(text)

    def _clean(self) -> None:
        self._ground.remove(lambda one: one.state.name != self.server.name)
        self._ground.write(self.server.settled())

    def _remove_all(self) -> None:
        self._ground.remove(lambda _: True)
        self._ground.write(self.server.stopped_for_good())
