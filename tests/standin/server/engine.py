"""The engine of the stand-in: gives a request's tokens their time, counts them, and hangs or dies when told."""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from tests.standin.server import behaviour, log
from tests.standin.server.arguments import Arguments
from tests.standin.server.behaviour import Behaviour

_POLL = 0.02


@dataclass
class Counts:
    """What /metrics tells of; `shown` is `running` as of the last step: vLLM's gauges move with steps alone."""

    running: int = 0
    shown: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    iterations: int = 0
    iteration_tokens: int = 0
    requests: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0


class Engine:
    """One engine; its methods may be called from any thread."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.counts = Counts()
        self._lock = threading.Lock()

    @property
    def how(self) -> Behaviour:
        """What it is told to do at this moment."""
        return behaviour.read(self.arguments.model, self.arguments.words)

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request from its arrival to its end."""
        with self._lock:
            self.counts.requests += 1
            self.counts.running += 1
            number = self.counts.requests
        try:
            self._crash(number)
            yield
        finally:
            with self._lock:
                self.counts.running -= 1
                self.counts.shown = self.counts.running

    def prefill(self, tokens: int) -> None:
        """Computes a prompt."""
        self._hang()
        time.sleep(tokens / self.how.prompt_tokens_per_second)
        with self._lock:
            self.counts.prompt_tokens += tokens
            self.counts.shown = self.counts.running

    def decode(self, tokens: Iterable[str]) -> Iterator[list[str]]:
        """Yields the tokens step by step, at the speed of the moment; with speculation several in a step."""
        stream, number = iter(tokens), 0
        while True:
            # Of the drafts of even steps half are accepted, of odd steps all but one.
            spec = self.arguments.spec_tokens
            accepted = (spec // 2 if number % 2 else max(spec - 1, 0)) if spec else 0
            step = list(islice(stream, accepted + 1))
            if not step:
                return
            self._hang()
            time.sleep(len(step) / self.how.tokens_per_second)
            number += 1
            with self._lock:
                counts = self.counts
                counts.generation_tokens += len(step)
                counts.iterations += 1
                counts.iteration_tokens += len(step)
                if spec:
                    counts.drafts += 1
                    counts.drafted += spec
                    counts.accepted += len(step) - 1
            yield step

    def _hang(self) -> None:
        while (after := self.how.hang_after_requests) is not None and self.counts.requests > after:
            time.sleep(_POLL)

    def _crash(self, number: int) -> None:
        after = self.how.crash_after_requests
        if after is not None and number > after:
            log.line("EngineCore", "core.py:1587", "EngineCore encountered a fatal error.", "ERROR")
            log.line("EngineCore", "core.py:1587", "RuntimeError: the stand-in was told to crash", "ERROR")
            # As a process that dies does: nothing is answered, nothing is closed.
            os._exit(1)
