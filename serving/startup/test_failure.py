import pytest

from serving.containers.state import GONE, ContainerState
from serving.startup import made_up
from serving.startup.failure import Reason, ended
from serving.startup.phases import PHASES

AUTOTUNE = next(phase for phase in PHASES if phase.name == "autotune")


def error(message: str, process: str = "Worker_TP2") -> str:
    return made_up.logged(process, "x.py:1", message, "ERROR")


SECOND_HAND = [
    error("Exception: WorkerProc initialization failed due to an exception in a background process.", "EngineCore"),
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
]
OUT_OF_MEMORY = [
    error("WorkerProc failed to start."),
    error("Traceback (most recent call last):"),
    error('  File "x.py", line 1, in tune'),
    error("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB."),
    *SECOND_HAND,
]
TAKEN = "ValueError: Free memory on device cuda:0 (10.1/95.0 GiB) on startup is less than desired GPU memory "
TAKEN += "utilization (0.94, 89.27 GiB). Decrease GPU memory utilization"
TOO_LONG = "ValueError: To serve at least one request with the model's max seq len (1048576), (2.1 GiB KV "
TOO_LONG += "cache is needed, which is larger than the available KV cache memory (1.2 GiB)."
VALIDATION = [
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig",
    "  Value error, World size (4) is larger than the number of available GPUs (0) in this node.",
    "- multiprocessing, set '--nnodes' appropriately. [type=value_error]",
]
DIED = "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor."
SWITCH = [
    made_up.ATTESTED,
    "moet: step  name",
    "moet: VLLM_MOET_X='2': expected 0 (upstream's path) or 1 (step x)",
    "moet: warning: VLLM_MOET_Y is no switch of this image and does nothing",
]
MISMATCH = [
    "moet: MISMATCH overlay /a: sha256 1, found 2",
    "moet: 1 mismatch in dsv41:vllm0.33.0-r1: refused: do not install into the container",
]


@pytest.mark.parametrize(
    ("status", "lines", "reason", "said"),
    [
        (1, OUT_OF_MEMORY, "out of memory", "CUDA out of memory. Tried to allocate 1.41 GiB; lower GPU_MEM_UTIL"),
        (1, [error(TAKEN), *SECOND_HAND], "out of memory", f"{TAKEN}; end what else holds the GPUs"),
        (1, [error(TOO_LONG, "EngineCore")], "out of memory", f"{TOO_LONG[:-1]}; lower MAX_MODEL_LEN, or raise"),
        (1, [error("KeyError: 'x'"), *SECOND_HAND], "crashed", "exit status 1: KeyError: 'x'"),
        (1, VALIDATION, "crashed", "1 validation error for ParallelConfig Value error, World size (4) is larger than"),
        (1, [error(DIED, "EngineCore")], "crashed", f"{DIED[:-1]}; exit code -9 is the kernel's"),
        (1, SECOND_HAND, "crashed", "Exception: WorkerProc initialization failed due to"),
        (2, [made_up.ATTESTED, "vllm serve: error: no such: --x"], "crashed", "exit status 2: vllm serve: error: no "),
        (2, SWITCH, "refused", "VLLM_MOET_X='2': expected 0 (upstream's path) or 1 (step x); a switch has a value"),
        (3, MISMATCH, "refused", "MISMATCH overlay /a: sha256 1, found 2; the image differs from its manifest"),
        (4, ["moet: MOET_MANIFEST_SHA256 is not set: x"], "refused", "is not set: x; there is nothing to attest"),
        (5, [made_up.ATTESTED, "moet: self-test: moe_front: wrong"], "refused", "moe_front: wrong; a kernel is wrong"),
        (137, ["x"], "crashed", "it was killed (SIGKILL); `dmesg` says"),
        (0, [], "crashed", "exit status 0: it wrote nothing"),
        (143, ["INFO: Shutting down"], "crashed", "exit status 143: INFO: Shutting down"),
    ],
)
def test_reason_and_words(status: int, lines: list[str], reason: Reason, said: str) -> None:
    found = ended(ContainerState("dsv41", "exited", status), AUTOTUNE, 843, lines)
    assert found.reason == reason and found.exit_code == status
    assert said in str(found) and "\n" not in str(found)
    assert str(found).startswith(f"{reason} after 14:03, in phase autotune (FlashInfer times its kernels): ")
    assert found.tail == tuple(lines[-50:])


def test_what_the_engine_says_goes_before_the_log() -> None:
    killed = ended(ContainerState("dsv41", "exited", 137, oom_killed=True), AUTOTUNE, 1, OUT_OF_MEMORY)
    assert killed.reason == "out of memory" and "KV_OFFLOAD_GIB" in killed.advice
    gone = ended(GONE, AUTOTUNE, 1, OUT_OF_MEMORY)
    assert gone.reason == "gone" and gone.exit_code is None
    refused = ended(ContainerState("dsv41", "created", 127, error="driver failed: no GPU"), AUTOTUNE, 0, [])
    assert refused.reason == "crashed" and "the engine could not start it: driver failed: no GPU" in str(refused)


def test_tail_is_the_last_fifty_lines() -> None:
    found = ended(ContainerState("dsv41", "exited", 1), AUTOTUNE, 0, [str(number) for number in range(200)])
    assert found.tail == tuple(str(number) for number in range(150, 200))
