"""Docker's events of a pull: how far it is, and what a refusal means."""

from typing import Any

from images.engine.errors import EngineError
from images.engine.interface import Progress

# The engine's words for a refusal, and what to do about it.
_ADVICE = {
    "HTTP response to HTTPS client": "the registry speaks plain HTTP, which the engine takes from loopback and from"
    ' "insecure-registries" of its daemon.json alone',
    "manifest unknown": "the registry has no such manifest",
    "not found": "the registry has no such manifest",
    "unauthorized": "log in first: docker login {registry}",
    "no basic auth": "log in first: docker login {registry}",
    "denied": "log in first: docker login {registry}, or ask for the right to read there",
    "certificate": "the registry's certificate is not trusted: install its CA",
    "connection refused": "nothing listens there: check the host and the port",
    "no such host": "the host is unknown: check its name",
    "no space left on device": "the engine's disk is full: free some there and pull again",
    "unexpected EOF": "the connection broke: pull again, what has arrived is kept where the engine can",
}


def refusal(engine: str, reference: str, message: str) -> EngineError:
    """The error for what `engine` said when it did not pull `reference`."""
    text = " ".join(message.split())
    advice = next((words for mark, words in _ADVICE.items() if mark in text), "its message says why")
    registry = reference.partition("/")[0]
    return EngineError(f"{reference} was not pulled: {advice.format(registry=registry)} ({engine}: {text[-300:]})")


class Pulling:
    """Shows a pull as two phases: all layers' bytes that come, then their unpacking."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._what = what
        self._phase = ""
        self._total = 0
        self._sizes: dict[str, int] = {}
        self._done: dict[str, dict[str, int]] = {"Downloading": {}, "Extracting": {}}

    def show(self, event: dict[str, Any]) -> None:
        """Takes one event of the engine's."""
        status, layer = event.get("status", ""), event.get("id", "")
        detail = event.get("progressDetail") or {}
        if status in self._done and "current" in detail:
            self._sizes.setdefault(layer, detail.get("total", 0))
        if layer not in self._sizes:
            return
        size = self._sizes[layer]
        if status in ("Extracting", "Pull complete"):
            # Docker leaves events out: of a small layer it may tell only when it is there.
            self._done["Downloading"][layer] = size
        if status in ("Download complete", "Pull complete"):
            self._advance("Downloading" if status == "Download complete" else "Extracting", layer, size)
        elif status in self._done and "current" in detail:
            self._advance(status, layer, detail["current"])

    def _advance(self, phase: str, layer: str, current: int) -> None:
        before = self._done[phase].get(layer, 0)
        self._done[phase][layer] = max(before, current)
        coming = sum(self._done["Downloading"].values()) < sum(self._sizes.values())
        shown, total = "Downloading" if coming else "Extracting", sum(self._sizes.values())
        if (shown, total) != (self._phase, self._total):
            self._phase, self._total = shown, total
            self._progress.start(f"{'pulling' if coming else 'unpacking'} {self._what}", total)
            self._progress.advance(sum(self._done[shown].values()))
        elif phase == shown:
            self._progress.advance(self._done[phase][layer] - before)
