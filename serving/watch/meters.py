"""The watchdog's own Prometheus metrics. What the server itself shows is not repeated."""

import time

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, start_http_server

from serving.generations.generation import Generation
from serving.watch.machine import PHASES, REASONS, Reason
from tools.cli.errors import UserError

_ADDRESS = "127.0.0.1"


class Meters:
    """The metrics of one server."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.registry = found = CollectorRegistry()
        one = ("server",)
        self._ready = Gauge(
            "moet_server_ready", "Whether the server is attested and computes tokens.", one, registry=found
        ).labels(name)
        self._state = Enum(
            "moet_server_state", "Where the server is.", one, registry=found, states=list(PHASES)
        ).labels(name)
        self._canary = Gauge(
            "moet_server_canary_seconds", "How long the last token that was asked for took.", one, registry=found
        ).labels(name)
        self._failed = Counter(
            "moet_server_canary_failures", "Tokens that were asked for and did not come.", one, registry=found
        ).labels(name)
        self._progress = Gauge(
            "moet_server_last_progress_timestamp_seconds", "When it last showed life.", one, registry=found
        ).labels(name)
        restarts = Counter(
            "moet_server_restarts", "Times that it was started again, by why.", (*one, "reason"), registry=found
        )
        # All are there from the first, so that a rate can be taken of the first.
        self._restarts: dict[Reason, Counter] = {reason: restarts.labels(name, reason) for reason in REASONS}
        self._generation = Gauge(
            "moet_server_generation_info",
            "The generation that is watched; always 1.",
            (*one, "generation", "image", "image_id"),
            registry=found,
        )

    def serve(self, port: int) -> None:
        """Answers at a port of the loopback address until the process ends. Raises UserError where it is taken."""
        try:
            start_http_server(port, _ADDRESS, self.registry)
        except OSError as error:
            raise UserError(f"--metrics-port {port}: {error.strerror}: choose a free one") from None

    def state(self, phase: str, ready: bool) -> None:
        """Where the server is."""
        self._state.state(phase)
        self._ready.set(ready)

    def generation(self, generation: Generation | None) -> None:
        """Which generation it is; None for a container that has none."""
        self._generation.clear()
        if generation is not None:
            image = generation.image
            self._generation.labels(self._name, str(generation.number), image.name, image.image_id).set(1)

    def canary(self, seconds: float | None) -> None:
        """A canary that took so long, or (None) failed."""
        if seconds is None:
            self._failed.inc()
        else:
            self._canary.set(seconds)

    def progress(self, age: float) -> None:
        """How long ago it last showed life."""
        self._progress.set(time.time() - age)

    def restart(self, reason: Reason) -> None:
        """It was started, or ended for its supervisor to start it."""
        self._restarts[reason].inc()
