"""Whether a server's engines get on, from one look to the next."""

from collections.abc import Hashable

from serving.probe.metrics import Progress


class Pace:
    """Compares looks at the runs of one server.

    A token is progress. So is a KV cache that is fuller than at any look since the last token: that of a long prompt,
    which has no token before its end (serving/probe/metrics.py). Requests that come, and blocks that come and go, are
    not: a scheduler that tries the same thing for ever moves these too.
    """

    def __init__(self) -> None:
        self._run: str | None = None
        self._tokens: Hashable = None
        self._requests = 0
        self._fullest = 0.0

    def moved(self, run: str, progress: Progress | None) -> bool:
        """Whether the run `run` has got on since it was looked at last; False where it has no figures, or new ones."""
        if progress is None:
            return False
        tokens = tuple((one.prompt_tokens, one.generation_tokens, one.iterations) for one in progress.engines)
        requests = progress.running + progress.waiting
        full = sum(one.kv_cache_usage for one in progress.engines)
        first, token = self._run != run, self._tokens != tokens
        moved = not first and (token or full > self._fullest)
        # Where requests have left, the next prompt begins with less.
        anew = first or token or requests < self._requests
        self._fullest = full if anew else max(full, self._fullest)
        self._run, self._tokens, self._requests = run, tokens, requests
        return moved
