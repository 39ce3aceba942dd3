"""A start for tests: a clock that is told, a container with a script, and the lines that vLLM 0.33.0 logs."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from images.engine.errors import EngineError
from serving.containers.state import GONE, ContainerState, Status
from serving.launch import settings
from serving.launch.launch import Launch
from serving.launch.plan import plan
from serving.launch.settings import Settings
from serving.profiles import load

ATTESTED = "moet: dsv41:vllm0.33.0-r1 (vllm 0.33.0, 4ba787ec9; commit 0123456789ab): attested, 2 files (2 overlay), "
ATTESTED += "manifest 0123456789ab"


def logged(process: str, file: str, message: str, level: str = "INFO") -> str:
    """A line as vLLM's logger writes it."""
    return f"({process} pid=71) {level} 11-29 23:43:00 [{file}] {message}"


# In the order of a start on four GPUs, with one line for each mark of phases.py that such a start has.
START = (
    ATTESTED,
    logged("APIServer", "startup.py:38", "vLLM server version 0.33.0, serving model /model"),
    logged("EngineCore", "core.py:140", "Initializing a V1 LLM engine (v0.33.0) with config: model='/model'"),
    logged("Worker_TP0", "model_runner.py:399", "Loading model from scratch..."),
    "Loading safetensors checkpoint shards:  25% Completed | 40/160 [02:10<06:30,  3.25s/it]",
    logged("Worker_TP0", "model_runner.py:429", "Model loading took 81.1 GiB memory and 600.000000 seconds"),
    "Capturing CUDA graphs (FULL): 100%|██████████| 2/2 [00:01<00:00,  1.5it/s]",
    logged("Worker_TP0", "gpu_worker.py:773", "Available KV cache memory: 3.14 GiB"),
    logged("Worker_TP0", "kernel_warmup.py:170", "JIT kernel warmup starting."),
    "DeepGEMM warmup:  50%|█████     | 300/600 [00:30<00:30, 10.0it/s]",
    logged("Worker_TP0", "kernel_warmup.py:480", "Using FlashInfer autotune cache file: /var/lib/moet/x.json. Pass "),
    "Capturing CUDA graphs (FULL):  50%|█████     | 4/8 [00:03<00:03,  1.2it/s]",
    logged("EngineCore", "core.py:413", "init engine (profile, create kv cache, warmup model) took 300.00 s"),
    "INFO:     Application startup complete.",
)
# Where a start is before the first line, and after each.
PHASES = [
    *("attest", "program", "program", "engine", "weights", "weights", "memory", "memory"),
    *("cache", "kernels", "kernels", "autotune", "graphs", "api", "up"),
]


@dataclass
class Clock:
    """A clock that sleeping moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Moves it."""
        self.now += seconds


class Lines(Iterator[str]):
    """Lines that are put in, until None."""

    def __init__(self) -> None:
        """None yet."""
        self._lines: list[str | None] = []
        self._changed = threading.Condition()
        self._awaited = False

    def __next__(self) -> str:
        """The next, waiting for it."""
        with self._changed:
            self._awaited = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._lines)
            self._awaited = False
            line = self._lines.pop(0)
        if line is None:
            raise StopIteration
        return line

    def put(self, line: str | None) -> None:
        """One more."""
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends them."""
        self.put(None)

    def taken(self, seconds: float) -> bool:
        """Whether whoever reads them has dealt with all, and waits for the next; waits up to `seconds` for that."""
        with self._changed:
            return self._changed.wait_for(lambda: self._awaited and not self._lines, seconds)


@dataclass
class Container:
    """A container that runs, and logs what say() is told; while `away`, the engine does not answer."""

    status: Status = "running"
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    away: bool = False
    cpu: float | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)

    def state(self) -> ContainerState:
        """As it was made."""
        self._answer()
        if self.status == "gone":
            return GONE
        return ContainerState("dsv41", self.status, self.exit_code, self.oom_killed, error=self.error)

    def follow(self, since: float | None = None) -> Lines:
        """Its lines; `since` makes no difference."""
        del since
        self._answer()
        return self.lines

    def cpu_seconds(self) -> float | None:
        """As it was made."""
        self._answer()
        return self.cpu

    def run_in(self, command: Sequence[str]) -> tuple[int, str]:
        """Nothing can be run."""
        raise EngineError(f"{command[0]}: nothing runs here")

    def read_file(self, path: str) -> bytes | None:
        """Of `files`."""
        return self.files.get(path)

    def write_file(self, path: str, data: bytes, uid: int, mode: int) -> None:
        """Into `files`."""
        assert (uid, mode) == (1000, 0o644)
        self.files[path] = data

    def say(self, *lines: str) -> None:
        """Logs."""
        for line in lines:
            self.lines.put(line)

    def end(self, exit_code: int, *lines: str, oom_killed: bool = False) -> None:
        """Logs, and ends."""
        self.say(*lines)
        self.lines.close()
        self.status, self.exit_code, self.oom_killed = "exited", exit_code, oom_killed

    def _answer(self) -> None:
        if self.away:
            raise EngineError("docker 20.10 at unix:///x does not answer (gone)")


def chosen(*given: str) -> Settings:
    """Settings of the line dsv41."""
    return settings.resolve(load.load("dsv41"), ["MODEL_DIR=/models/x", *given], {})


def launch(*given: str, image: str = "dsv41:vllm0.33.0-r1") -> Launch:
    """A launch of the line dsv41."""
    return plan(chosen(*given), image, None, "published").launch
