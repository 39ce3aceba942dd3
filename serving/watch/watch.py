"""The watchdog itself: looks, asks for tokens, saves logs, stops and starts, until it gives up or is ended."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from images.engine.errors import EngineError
from serving.containers.container import Container
from serving.generations import place, saved_logs
from serving.generations.generation import now as utc
from serving.probe.api import Api
from serving.probe.asking import ProbeError
from serving.probe.attested import Attested
from serving.probe.questions import canary
from serving.probe.ready import attestation
from serving.watch import machine, record, wording
from serving.watch.looking import Engine, Look
from serving.watch.machine import Act, Limits, Memory
from serving.watch.meters import Meters
from serving.watch.notify import Notify
from serving.watch.subject import Subject, Target
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.files import lock

_STOP_SECONDS = 30
# With the last log, what was seen before: ten minutes of looks.
_KEPT = 60


class Watch:
    """A watchdog of one server.

    Args:
        subject: what is watched.
        engine: where it runs.
        limits: when what is done.
        meters: its metrics.
        clear: gives back memory of the host that a dead server holds; called before each start.
        out: where it says what it sees.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        subject: Subject,
        engine: Engine,
        limits: Limits,
        meters: Meters,
        clear: Callable[[], None],
        out: Output,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subject, self._engine, self.limits = subject, engine, limits
        self._meters, self._clear, self._out, self._clock = meters, clear, out, clock
        before = record.Record.read(subject.name)
        self.memory = before.memory(clock()) if before else Memory()
        self.record: record.Record | None = None
        self._log = before.log if before else None
        self._attested: tuple[str, Attested | None] | None = None
        self._lines: deque[str] = deque(maxlen=_KEPT)

    def run(self, interval: float, notify: Notify, sleep: Callable[[float], None] = time.sleep) -> None:
        """Watches until it gives up; a look every `interval` seconds.

        Raises UserError where it cannot watch, or another watchdog of the server does.
        """
        try:
            with lock.exclusive(place.folder(self._subject.name) / "watch.lock"):
                while self.step() != "give up":
                    notify.tell(READY="1", WATCHDOG="1", STATUS=self.memory.phase)
                    sleep(interval)
        finally:
            notify.tell(STOPPING="1")
            self._engine.close()

    def step(self) -> Act:
        """Looks once, and does what follows; returns that."""
        target = self._subject.target()
        if target.deadline is not None:
            self.limits = replace(self.limits, deadline=target.deadline)
        seen = self._engine.look(target, self.memory)
        before = self.memory
        self.memory, act = machine.look(before, seen.seen, self._clock(), self.limits)
        self._lines.append(f"{utc()} {self._line(seen)}")
        try:
            self._keep_log_of_another(before, target, seen)
            why = self._do(act, target, seen)
        except EngineError as error:
            why = str(error)
            self._out.note(f"{self._subject.name}: {error}")
        self._tell(before, target, why)
        return act

    @property
    def ready(self) -> bool:
        """Whether the server is attested and computes tokens."""
        return self.memory.phase == "ready" and self.attested is not None

    @property
    def attested(self) -> Attested | None:
        """What the run that is watched was attested as; None where it was not, or not yet."""
        run, found = self._attested or (None, None)
        return found if run == self.memory.run else None

    def _do(self, act: Act, target: Target, look: Look) -> str:
        """Does it, and returns what is to be known of it. Raises EngineError, UserError."""
        container = look.container
        if act == "canary" and container is not None and look.api is not None:
            return self._canary(look.api, container, look)
        if container is None or act == "wait":
            return target.operation
        if act in ("end", "give up"):
            failed = wording.failure(self.memory, None if look.state.running else look.state.exit_code)
            self._log = self._save(target, container, look.state.started_at, failed)
            if act == "give up":
                return wording.gave_up(target, self.memory, self.limits, failed, self._log)
            said = f"{failed}; {wording.again(self.memory, self._clock(), self.limits)}"
            if look.seen.supervised and self.memory.reason:
                self._meters.restart(self.memory.reason)
            if look.state.running:
                try:
                    self._stop(container, look)
                except EngineError as error:
                    return f"{said}; {error}"
            return said
        if act == "stop":
            self._stop(container, look)
        elif act == "start":
            self._start(container)
        return ""

    def _keep_log_of_another(self, before: Memory, target: Target, look: Look) -> None:
        """Saves the log of a run that ended and was not this watchdog's to start again, as with a restart policy."""
        again = look.state.status == "restarting" or (look.state.running and before.run != look.seen.run)
        if before.was_up and again and look.container:
            self._log = self._save(target, look.container, None, "it was started again, not by its watchdog")

    def _canary(self, api: Api, container: Container, look: Look) -> str:
        try:
            token = canary(api, self.limits.canary)
        except ProbeError as error:
            if error.refused:
                raise UserError(f"no token can be asked for: {error}") from None
            self._lines.append(f"{utc()} canary failed: {error}")
            self._meters.canary(None)
            self.memory = machine.answered(self.memory, False, self._clock())
            # Before the server is up, no more can be expected.
            return str(error) if self.memory.ready else ""
        self._lines.append(f"{utc()} canary: {token.seconds:.2f} s")
        self._meters.canary(token.seconds)
        self.memory = machine.answered(self.memory, True, self._clock())
        if self._attested is None or self._attested[0] != look.seen.run:
            self._attested = look.seen.run, attestation(container, look.state.started_at)
        return "" if self.attested else "its image is not attested: it is watched, and does not count as ready"

    def _stop(self, container: Container, look: Look) -> None:
        with self._subject.acting() as ours:
            if not ours:
                return
            if look.seen.supervised:
                # Its supervisor takes a clean end for a wish.
                container.kill()
            else:
                container.stop(_STOP_SECONDS)

    def _start(self, container: Container) -> None:
        with self._subject.acting() as ours:
            if not ours:
                return
            self._clear()
            container.start()
            if self.memory.reason:
                self._meters.restart(self.memory.reason)

    def _save(self, target: Target, container: Container, since: float | None, failed: str) -> str | None:
        """Keeps the server's last output since a time (epoch), below what was seen of it; returns the file."""
        generation = target.generation.number if target.generation else None
        try:
            output = container.logs(saved_logs.LINES, since)
        except EngineError as error:
            output = f"the engine has no log of it: {error}\n"
        text = "\n".join(["what the watchdog saw:", *self._lines, "", "its output:", output])
        try:
            return str(saved_logs.save(self._subject.name, generation, utc(), failed, text))
        except OSError as error:
            self._out.note(f"{self._subject.name}: its last log is not saved: {error}")
            return None

    def _line(self, look: Look) -> str:
        """What was seen, for whoever reads the log of a failure."""
        progress, state = look.progress, look.state
        words = [self.memory.phase, state.status if look.seen.engine else "engine away"]
        if state.status == "exited":
            words.append(f"status {state.exit_code}")
        if progress is not None:
            words.append(f"{progress.running} running, {progress.waiting} waiting")
            words.append(f"{progress.prompt_tokens} prompt and {progress.generation_tokens} generated tokens")
            words.append(f"KV cache {progress.kv_cache_usage:.1%}")
        elif state.running:
            words.append("no metrics")
        return ", ".join(words)

    def _tell(self, before: Memory, target: Target, why: str) -> None:
        """Metrics always; a line and the record where something changed."""
        now = self._clock()
        self._meters.state(self.memory.phase, self.ready)
        self._meters.generation(target.generation)
        if self.memory.ready:
            self._meters.progress(now - self.memory.alive_at)
        changed = before.phase != self.memory.phase
        if not changed and before.starts == self.memory.starts and self.record is not None:
            return
        if changed:
            self._out.note(f"{self._subject.name}: {self.memory.phase}" + (f": {why}" if why else ""))
        since = utc() if changed or self.record is None else self.record.since
        generation = target.generation.number if target.generation else None
        self.record = record.of(self._subject.name, self.memory, now, since, why, generation, self._log)
        try:
            self.record.write()
        except OSError as error:
            self._out.note(f"{self._subject.name}: {record.path(self._subject.name)}: {error.strerror}")
