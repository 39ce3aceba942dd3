"""Why a start failed: what vLLM 0.33.0 said about it, and what mends it.

Each text is a part of a message as the named file writes it; test_marks.py holds them against the pinned wheel.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from serving.startup.phases import message

# The last line of a Python traceback.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?=[A-Z])\w*(?:Error|Exception|Interrupt|Exit): .")
_VALIDATION = re.compile(r"validation errors? for \w+$")
# What the processes above the one that failed say of it.
SECOND_HAND = ("Engine core initialization failed. ", "WorkerProc initialization failed due to an exception in a ")


@dataclass(frozen=True)
class Problem:
    """A message that tells why. `memory`: whether it is about memory; `mend`: what to do, without a full stop."""

    text: str
    file: str
    memory: bool
    mend: str


_TUNING = "lower GPU_MEM_UTIL by 0.01 or 0.02, or MAX_NUM_BATCHED_TOKENS"
PROBLEMS = (
    Problem(
        "is less than desired GPU memory utilization",
        "vllm/v1/worker/utils.py",
        True,
        "end what else holds the GPUs (`nvidia-smi` lists it), or lower GPU_MEM_UTIL",
    ),
    Problem(
        "No available memory for the cache blocks. ",
        "vllm/v1/core/kv_cache_planning.py",
        True,
        "raise GPU_MEM_UTIL, or lower MAX_NUM_BATCHED_TOKENS",
    ),
    Problem(
        "cache is needed, which is larger than the available KV cache ",
        "vllm/v1/core/kv_cache_planning.py",
        True,
        "lower MAX_MODEL_LEN, or raise GPU_MEM_UTIL",
    ),
    Problem(
        "Insufficient space in ",
        "vllm/distributed/device_communicators/shm_broadcast.py",
        True,
        "free /dev/shm or make it larger, or lower KV_OFFLOAD_GIB; `moet serve preflight` says how much is needed",
    ),
    Problem("CUDA out of memory", "torch", True, _TUNING),
    Problem("CUDA error: out of memory", "torch", True, _TUNING),
    Problem(
        "died unexpectedly (exit code: ",
        "vllm/v1/executor/multiproc_executor.py",
        False,
        "exit code -9 is the kernel's, for want of memory, or somebody's: `dmesg` says; others are in the log",
    ),
    Problem(
        "Timed out waiting for engine core processes to ",
        "vllm/v1/engine/core_client.py",
        False,
        "the log says what phase it was in; VLLM_ENGINE_READY_TIMEOUT_S is how long vLLM waits",
    ),
)


def problem(lines: Sequence[str]) -> Problem | None:
    """The first of PROBLEMS that a log has; None where it has none."""
    return next((one for line in lines for one in PROBLEMS if one.text in line), None)


def cause(lines: Sequence[str]) -> str:
    """What went wrong in the program's own words: the exception that came first, on one line; "" where none did."""
    said = [message(line) for line in lines]
    found = [number for number, words in enumerate(said) if _RAISED.match(words)]
    first_hand = [number for number in found if not any(text in said[number] for text in SECOND_HAND)]
    number = next(iter(first_hand or found), None)
    if number is None:
        return ""
    # pydantic says what is wrong in the line after.
    return " ".join(said[number : number + 2] if _VALIDATION.search(said[number]) else said[number : number + 1])
