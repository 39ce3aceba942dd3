"""The phases of a start of vLLM 0.33.0, recognised from what its processes log.

Each mark's text is a part of a line as the named file of the wheel writes it; test_marks.py holds them against the
pinned wheel. Lines of all processes come on stderr with one prefix (vllm/logger.py:28).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from images.inspect.text import plain

# (Worker_TP0 pid=123) INFO 11-29 23:43:00 [model_runner.py:429] message
_PREFIX = re.compile(r"^\([^()]* pid=\d+\) [A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# tqdm's bar, and the line that vLLM has instead for weights (model_executor/model_loader/weight_utils.py:842).
_BAR = re.compile(r"^(?:\([^()]* pid=\d+\) )?([A-Z][^:|]*): +(\d{1,3})%(?: Completed)? ?\|[^|]*?(?:\| )?(\d+/\d+) ?\[")


@dataclass(frozen=True)
class Phase:
    """A phase: a short name, and what goes on in it."""

    name: str
    what: str


PHASES = (
    Phase("attest", "the entry point holds the image against its manifest"),
    Phase("program", "vLLM is imported and reads its configuration"),
    Phase("engine", "the engine starts a process for each GPU, and they find each other"),
    Phase("weights", "the checkpoint is read to the GPUs"),
    Phase("memory", "a full step is tried, which compiles, and shows what memory it takes"),
    Phase("cache", "the KV cache takes the memory that is left"),
    Phase("kernels", "kernels are compiled and run once"),
    Phase("autotune", "FlashInfer times its kernels"),
    Phase("graphs", "CUDA graphs are captured"),
    Phase("api", "the API server starts"),
    Phase("up", "the API server listens"),
)
_INDEX = {phase.name: number for number, phase in enumerate(PHASES)}


@dataclass(frozen=True)
class Mark:
    """A text that a phase begins with.

    Attributes:
        phase: that begins.
        text: part of the line.
        file: where the text is from, in the wheel of vLLM, or of uvicorn, or in this tree.
        after: the phase that must have begun before; the text means nothing earlier.
    """

    phase: str
    text: str
    file: str
    after: str = "attest"


MARKS = (
    Mark("program", ": attested, ", "serving/runtime/report.py"),
    Mark("engine", "Initializing a V1 LLM engine (v", "vllm/v1/engine/core.py"),
    Mark("weights", "Loading model from scratch...", "vllm/v1/worker/gpu/model_runner.py"),
    Mark("weights", "Starting to load model ", "vllm/v1/worker/gpu_model_runner.py"),
    Mark("memory", "Model loading took ", "vllm/v1/worker/gpu/model_runner.py"),
    Mark("cache", "Available KV cache memory: ", "vllm/v1/worker/gpu_worker.py"),
    Mark("kernels", "JIT kernel warmup starting.", "vllm/model_executor/warmup/kernel_warmup.py"),
    Mark("kernels", "DeepGEMM warmup", "vllm/model_executor/warmup/deep_gemm_warmup.py", after="cache"),
    Mark("autotune", "Using FlashInfer autotune cache file: ", "vllm/model_executor/warmup/kernel_warmup.py"),
    Mark("autotune", "Using FlashInfer managed autotune cache", "vllm/model_executor/warmup/kernel_warmup.py"),
    # Graphs are captured for a first time to measure their memory, in the phase "memory".
    Mark("graphs", "Capturing CUDA graphs", "vllm/v1/worker/gpu/cudagraph_utils.py", after="cache"),
    Mark("graphs", "Graph capturing finished in ", "vllm/v1/worker/gpu/model_runner.py", after="cache"),
    Mark("api", "init engine (profile, create kv cache, warmup model) took ", "vllm/v1/engine/core.py"),
    Mark("api", "Starting vLLM server on ", "vllm/entrypoints/launchers/api_server/entry.py"),
    Mark("up", "Application startup complete.", "uvicorn/lifespan/on.py"),
)
# vLLM's bars by the beginning of what they say, and where that is written.
BARS = (
    ("Loading safetensors checkpoint shards", "vllm/model_executor/model_loader/weight_utils.py"),
    ("Capturing CUDA graphs", "vllm/v1/worker/gpu/cudagraph_utils.py"),
    ("DeepGEMM warmup", "vllm/model_executor/warmup/deep_gemm_warmup.py"),
)


def message(line: str) -> str:
    """A line of a log without vLLM's prefix and colours, fit for a terminal."""
    return plain(_PREFIX.sub("", _COLOUR.sub("", line).strip()))


@dataclass
class Tracker:
    """Where a start is. It only goes forward: the engines of several data-parallel copies report one by one.

    Attributes:
        clock: seconds of a clock that only goes forward.
        phase: the one that was reached.
        bar: what vLLM's own progress bar says, with its share; "" where the phase has none.
        share: of that bar, 0 to 1; None where there is none.
        last: the last line that was logged; "" before the first.
        last_at: when that was, by `clock`; at first when the tracker was made.
        seconds: what the phases before this one took, by name.
    """

    clock: Callable[[], float]
    phase: Phase = PHASES[0]
    bar: str = ""
    share: float | None = None
    last: str = ""
    last_at: float = 0
    seconds: dict[str, float] = field(default_factory=dict)
    _began: float = 0

    def __post_init__(self) -> None:
        self._began = self.last_at = self.clock()

    def feed(self, line: str) -> bool:
        """Takes in one line of the log; returns whether a phase began with it."""
        said = message(line)
        if not said:
            return False
        self.last, self.last_at = said, self.clock()
        began = self._begin(said)
        if found := _BAR.match(_COLOUR.sub("", line).strip()):
            self.bar, self.share = f"{found[1]} {found[3]}", min(100, int(found[2])) / 100
        return began

    @property
    def in_phase(self) -> float:
        """How long the phase has lasted, in seconds."""
        return self.clock() - self._began

    @property
    def quiet(self) -> float:
        """How long nothing has been logged, in seconds."""
        return self.clock() - self.last_at

    def _begin(self, said: str) -> bool:
        here = _INDEX[self.phase.name]
        reached = [_INDEX[one.phase] for one in MARKS if one.text in said and here >= _INDEX[one.after]]
        if not reached or max(reached) <= here:
            return False
        self.seconds[self.phase.name] = self.in_phase
        self.phase, self._began = PHASES[max(reached)], self.clock()
        self.bar, self.share = "", None
        return True
