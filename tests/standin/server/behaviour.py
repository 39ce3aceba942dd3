"""How the stand-in is told to behave: standin.json in the model's folder.

    start_seconds         how long a start takes, spread evenly over its phases (default 0.2)
    phases                {phase: seconds}, which wins over the even share
    writes_cache          whether a start leaves a mark in the cache folder (default true)
    refuse_above_util     start only with at most this --gpu-memory-utilization, else fail as vLLM does
    cold_util             likewise, while there is no such mark
    fail_at               {"phase": ..., "status": 1, "line": ...}: end there
    oom_at                {"phase": ..., "how": "cuda" | "kill"}: out of GPU memory; or takes memory until it is killed
    hang_at               phase that never ends
    hang_after_requests   after so many requests no token comes any more; /health stays 200
    crash_after_requests  after so many requests the process ends with status 1
    tokens_per_second     of each stream (default 2000)
    prompt_tokens_per_second  (default 200000)
    health                status of /health (default 200)
    metrics               whether /metrics is there (default true)
    wrong                 list of what is answered wrongly: needle, json, tool, arguments, vision, reasoning, usage
    refuse                {"reasoning_effort": [...]}: values answered with 400
    for                   {WORD or NAME=VALUE: {...}}: more of the above, where the arguments have the word or the
                          environment the variable; generations of one model folder behave differently by these

It is read at the start of each phase and of each request, so that it can be changed meanwhile.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

FILE = "standin.json"


@dataclass(frozen=True)
class Behaviour:
    """What is said above."""

    start_seconds: float = 0.2
    phases: Mapping[str, float] = field(default_factory=dict)
    writes_cache: bool = True
    refuse_above_util: float = 1
    cold_util: float = 1
    fail_at: Mapping[str, Any] = field(default_factory=dict)
    oom_at: Mapping[str, Any] = field(default_factory=dict)
    hang_at: str = ""
    hang_after_requests: int | None = None
    crash_after_requests: int | None = None
    tokens_per_second: float = 2000
    prompt_tokens_per_second: float = 200_000
    health: int = 200
    metrics: bool = True
    wrong: Sequence[str] = ()
    refuse: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read(model: str, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> Behaviour:
    """Reads the file; without one the defaults hold. Raises ValueError for a file that is wrong."""
    try:
        data = json.loads(Path(model, FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Behaviour()
    for case, more in data.pop("for", {}).items():
        name, _, value = case.partition("=")
        if case in words or environment.get(name) == value:
            data |= more
    if unknown := data.keys() - {one.name for one in fields(Behaviour)}:
        raise ValueError(f"{FILE}: {', '.join(sorted(unknown))}: is nothing that the stand-in does")
    return Behaviour(**data)
