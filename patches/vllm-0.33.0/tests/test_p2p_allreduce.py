"""Step p2p-allreduce: who sums what, among four processes; and no token leaves after a sum that failed."""

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peer_memory import RANKS, PeerMemory, Words, everywhere
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators import pynccl
from vllm.platforms import current_platform
from vllm.v1.executor.multiproc_executor import WorkerProc
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu import async_utils

SWITCH = "VLLM_MOET_P2P_ALLREDUCE"
FOLDER = "vllm.distributed.device_communicators"
NAMES = (f"{FOLDER}.moet_p2p_all_reduce", f"{FOLDER}.cuda_communicator")
HIDDEN = 5120
# Imports FlashInfer, which looks at the card, ahead of the ranks.
importlib.import_module(f"{FOLDER}.flashinfer_all_reduce")

Fresh = Callable[..., ModuleType]


def anew(patch: pytest.MonkeyPatch, switch: str | None) -> ModuleType:
    """Imports the step's modules as a process does that has the switch; for processes that end with the test."""
    patch.delenv(SWITCH, raising=False)
    if switch is not None:
        patch.setenv(SWITCH, switch)
    for name in NAMES:
        sys.modules.pop(name, None)
    module, _ = (importlib.import_module(name) for name in NAMES)
    return module


class Nccl:
    """Where PyNcclCommunicator would be: sums over gloo."""

    def __init__(self, group: Any, device: Any) -> None:
        self.group, self.world_size, self.disabled = group, RANKS, False
        self.sums: list[tuple[int, ...]] = []

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        self.sums.append(tuple(x.shape))
        out = x.clone()
        torch.distributed.all_reduce(out, group=self.group)
        return out

    def destroy(self) -> None:
        pass


class Rank:
    """A process that is one of four ranks, with vLLM's own groups; `capturing` is whether a CUDA graph is captured."""

    def __init__(
        self,
        rank: int,
        port: int,
        config: VllmConfig,
        words: Words,
        *,
        switch: str | None = "1",
        fails: str | None = None,
        card: bool = True,
    ) -> None:
        self.patch = pytest.MonkeyPatch()
        self.rank, self.capturing, self.stream = rank, True, 7
        if not card:
            self.patch.setattr(type(current_platform), "is_device_capability", lambda *_: False)
        self.module: Any = anew(self.patch, switch)
        self.memory = PeerMemory(rank, words, self.patch)
        self.memory.fails = fails
        self.lines: list[str] = []
        self.patch.setattr(pynccl, "PyNcclCommunicator", Nccl)
        self.patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        self.patch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=self.stream))
        for name in ("VLLM_ALLREDUCE_USE_SYMM_MEM", "VLLM_ALLREDUCE_USE_FLASHINFER"):
            self.patch.setenv(name, "0")
        parallel_state.set_custom_all_reduce(False)
        for name in ("info", "warning"):
            self.patch.setattr(self.module.logger, name, lambda text, *more: self.lines.append(text % more))
        self.patch.setattr(self.module.logger, "warning_once", lambda text: self.lines.append(text))
        with set_current_vllm_config(config):
            parallel_state.init_distributed_environment(RANKS, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
            parallel_state.initialize_model_parallel(RANKS, backend="gloo")
        self.group = parallel_state.get_tp_group()
        self.communicator: Any = self.group.device_communicator

    def sum(self, x: torch.Tensor) -> tuple[torch.Tensor, str]:
        """What the group's operator calls, and who summed."""
        before = len(self.memory.sums), len(self.communicator.pynccl_comm.sums)
        out = parallel_state.all_reduce(x, self.group.unique_name)
        after = len(self.memory.sums), len(self.communicator.pynccl_comm.sums)
        return out, {(1, 0): "peers", (0, 1): "nccl"}[after[0] - before[0], after[1] - before[1]]


def part(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What a rank adds, such that the order of the sum and its rounding show."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(rank)) * 3.0**rank
    return values.to(dtype)


def exact(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The sum in fp32, in order of rank, rounded once."""
    total = part(0, shape, dtype).float()
    for rank in range(1, RANKS):
        total = total + part(rank, shape, dtype).float()
    return total.to(dtype)


CASES = [
    ((1, HIDDEN), torch.bfloat16, "peers"),
    ((6, HIDDEN), torch.bfloat16, "peers"),
    ((51, HIDDEN), torch.bfloat16, "peers"),
    ((52, HIDDEN), torch.bfloat16, "nccl"),
    ((512, 512), torch.float16, "peers"),
    ((8, HIDDEN), torch.float32, "peers"),
    ((131072,), torch.float32, "peers"),
    ((131076,), torch.float32, "nccl"),
    ((3, 5), torch.bfloat16, "nccl"),
    ((0, HIDDEN), torch.bfloat16, "nccl"),
    ((16,), torch.int32, "nccl"),
]


def sums(rank: int, port: int, config: VllmConfig, words: Words) -> dict[str, Any]:
    me = Rank(rank, port, config, words)
    found: dict[str, Any] = {"proof": len(me.memory.sums), "lines": list(me.lines)}
    found["groups"] = {
        name: group.device_communicator.moet_p2p is not None
        for name, reference in parallel_state._groups.items()
        if (group := reference()) is not None and group.device_communicator is not None
    }
    found["cases"] = []
    for shape, dtype, _ in CASES:
        x = part(rank, shape, dtype) if dtype.is_floating_point else torch.full(shape, rank, dtype=dtype)
        kept = x.clone()
        out, who = me.sum(x)
        assert torch.equal(x, kept) and (not x.numel() or out.data_ptr() != x.data_ptr())
        right = who == "nccl" or torch.equal(out, exact(shape, dtype))
        found["cases"].append((who, right))
    # One rank's tensor begins elsewhere, another's has gaps: still all of them sum the same way.
    shape = (4, HIDDEN)
    room = torch.zeros(4 * (HIDDEN + 8) + 1, dtype=torch.bfloat16)
    odd = {1: room[1 : 1 + 4 * HIDDEN].view(shape), 2: room[:-1].view(4, -1)[:, :HIDDEN]}.get(rank)
    x = part(rank, shape, torch.bfloat16) if odd is None else odd.copy_(part(rank, shape, torch.bfloat16))
    out, who = me.sum(x)
    found["odd"] = (who, torch.equal(out, exact(shape, torch.bfloat16)), out.is_contiguous())
    # A second stream of the same graph, then the first again; what is no capture is NCCL's, and parts captures.
    found["streams"] = []
    for stream, capturing in ((8, True), (7, True), (7, False), (8, True), (7, True)):
        me.stream, me.capturing = stream, capturing
        found["streams"].append(me.sum(part(rank, (1, HIDDEN), torch.bfloat16))[1])
    found["said"] = me.lines[len(found["lines"]) :]
    me.memory.calls.clear()
    parallel_state.destroy_model_parallel()
    me.communicator.destroy()
    found["closed"] = list(me.memory.calls)
    me.module.begin_peer_check()()
    return found


@pytest.fixture(scope="module")
def config(serve_config: Callable[..., VllmConfig]) -> VllmConfig:
    """The line's, on four cards."""
    return serve_config()


@pytest.fixture(scope="module")
def four(config: VllmConfig) -> list[dict[str, Any]]:
    """What four ranks found that sum with the switch on."""
    return everywhere(sums, config, Words())


def test_ranks_sum_what_fits_and_all_have_the_same_bits(four: list[dict[str, Any]]) -> None:
    for found in four:
        assert found["cases"] == [(who, True) for _, _, who in CASES]


def test_an_address_of_one_rank_changes_nothing(four: list[dict[str, Any]]) -> None:
    assert [found["odd"] for found in four] == [("peers", True, True)] * RANKS


def test_one_group_has_peer_memory(four: list[dict[str, Any]]) -> None:
    for found in four:
        assert found["groups"] and {name.split(":")[0] for name, has in found["groups"].items() if has} == {"tp"}


def test_one_stream_of_a_graph_sums(four: list[dict[str, Any]]) -> None:
    for found in four:
        assert found["streams"] == ["nccl", "peers", "nccl", "peers", "nccl"]
        assert set(found["said"]) == {
            f"{SWITCH}: NCCL where a CUDA graph sums on a second stream: peer memory is one stream's at a time"
        }


def test_it_is_proved_said_once_and_taken_down_once(four: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(four):
        assert found["proof"] == 4
        assert found["lines"] == ([f"{SWITCH}: 4 ranks sum over peer memory in CUDA graphs"] if rank == 0 else [])
        peers = [peer for peer in range(RANKS) if peer != rank]
        # The own memory stays to the end of the process.
        assert found["closed"] == [("close", rank, (peer + 1) << 20) for peer in peers]


def stays_with_nccl(rank: int, port: int, config: VllmConfig, switch: str | None, lacks: str | None) -> Any:
    """What a rank does where rank 2 lacks something, or the switch is off."""
    sys.modules.pop("moet_kernels.dispatch.all_reduce", None)
    mine = lacks if rank == 2 else None
    fails = mine if mine != "card" else None
    me = Rank(rank, port, config, Words(), switch=switch, fails=fails, card=mine != "card")
    out, who = me.sum(part(rank, (6, HIDDEN), torch.bfloat16))
    bits = [torch.empty_like(out) for _ in range(RANKS)]
    torch.distributed.all_gather(bits, out)
    assert all(torch.equal(out, other) for other in bits)
    me.module.begin_peer_check()()
    held = sum({"open": 1, "close": -1}.get(name, 0) for name, *_ in me.memory.calls if mine != name)
    loaded = "moet_kernels.dispatch.all_reduce" in sys.modules
    parallel_state.destroy_model_parallel()
    return who, me.communicator.moet_p2p, me.lines, held, loaded


@pytest.mark.parametrize("switch", [None, "0"])
def test_off_is_upstreams(config: VllmConfig, switch: str | None) -> None:
    for who, moet, lines, held, loaded in everywhere(stays_with_nccl, config, switch, None):
        assert (who, moet, lines, held, loaded) == ("nccl", None, [], 0, False)


@pytest.mark.parametrize(
    ("lacks", "line"),
    [
        ("allocate", "p2p_allreduce: rank 2: p2p_allocate: no such luck"),
        ("export", "p2p_allreduce: rank 2: p2p_export: no such luck"),
        ("open", "p2p_allreduce: rank 2: p2p_open: no such luck"),
        ("card", "rank 2: the device is not of compute capability 12.0"),
    ],
)
def test_what_one_rank_lacks_leaves_all_with_nccl(config: VllmConfig, lacks: str, line: str) -> None:
    for rank, (who, moet, lines, held, _) in enumerate(everywhere(stays_with_nccl, config, "1", lacks)):
        assert (who, moet, held) == ("nccl", None, 0)
        assert lines == ([f"{SWITCH}: NCCL as before, as {line}"] if rank == 0 else [])


@pytest.mark.parametrize(
    ("why", "line"),
    [
        ("batch invariance", "batch invariance is asked for, which larger tensors would break"),
        ("microbatches", "microbatches sum on two streams at the same time"),
        ("stages", "the pipeline has 2 stages"),
        ("eager", "no step runs as a CUDA graph"),
        ("pooling", "the model does not generate"),
        ("card", "the device is not of compute capability 12.0"),
        ("ranks", "16 ranks sum, not 2 to 8"),
        ("no configuration", "the configuration is not known"),
    ],
)
def test_refused_with_a_line(
    fresh: Fresh,
    serve_config: Callable[..., VllmConfig],
    device: Callable[[int, int], None],
    monkeypatch: pytest.MonkeyPatch,
    logged: list[str],
    why: str,
    line: str,
) -> None:
    module: Any = fresh(NAMES[0], **{SWITCH: "1"})
    config = serve_config(*(["--enforce-eager"] if why == "eager" else []))
    if why == "batch invariance":
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    elif why == "microbatches":
        monkeypatch.setattr(config.parallel_config, "enable_dbo", True)
    elif why == "stages":
        monkeypatch.setattr(config.parallel_config, "pipeline_parallel_size", 2)
    elif why == "pooling":
        monkeypatch.setattr(config.model_config, "runner_type", "pooling")
    elif why == "card":
        device(12, 1)
    ranks = 16 if why == "ranks" else RANKS
    communicator = SimpleNamespace(world_size=ranks, rank_in_group=0, device=torch.device("cuda", 0), cpu_group=None)

    def all_say_the_same(said: list[Any], value: Any, group: Any) -> None:
        said[:] = [value] * len(said)

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_say_the_same)
    with nullcontext() if why == "no configuration" else set_current_vllm_config(config):
        assert module.MoetP2pAllReduce.create(communicator) is None
    assert logged == [f"{SWITCH}: NCCL as before, as {line}"]


TOKENS = [[11], [12]]


class Clock:
    """What happened in which order on the way of a step's tokens to the host."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        event = SimpleNamespace(
            record=lambda stream=None: self.events.append("record"), synchronize=lambda: self.events.append("wait")
        )
        patch.setattr(torch.cuda, "Event", lambda **_: event)
        patch.setattr(torch.cuda, "set_stream", lambda stream: None)
        patch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        patch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
        self.copies = SimpleNamespace(wait_stream=lambda stream: self.events.append("after the step"))

    def begin_check(self) -> Callable[[], None]:
        self.events.append("look")
        return lambda: self.events.append("check")


def second_runner(clock: Clock) -> Any:
    """A step's output, as the runner has it that serves DeepSeek V4.1."""
    sampled = SimpleNamespace(
        sampled_token_ids=torch.tensor(TOKENS), logprobs_tensors=None, num_nans=None, sampling_mask_tensors=None
    )
    made = ModelRunnerOutput(req_ids=["a", "b"], req_id_to_index={"a": 0, "b": 1})
    counts = torch.ones(2, dtype=torch.int32)
    return async_utils.AsyncOutput(made, sampled, counts, None, clock.copies, False, None)


def first_runner(clock: Clock) -> Any:
    """The same of the runner before it, with asynchronous scheduling."""
    made = ModelRunnerOutput(req_ids=["a", "b"], req_id_to_index={"a": 0, "b": 1})
    return gpu_model_runner.AsyncGPUModelRunnerOutput(made, torch.tensor(TOKENS), None, [], clock.copies, 1024)


OUTPUTS = pytest.mark.parametrize(
    ("module", "output"), [(async_utils, second_runner), (gpu_model_runner, first_runner)], ids=["second", "first"]
)


@OUTPUTS
def test_a_step_is_looked_at_before_its_tokens_are(
    monkeypatch: pytest.MonkeyPatch, module: Any, output: Callable[[Clock], Any]
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(module, "begin_peer_check", clock.begin_check)
    made = output(clock)
    assert clock.events == ["after the step", "look", "record"]
    assert made.get_output().sampled_token_ids == TOKENS
    assert clock.events[3:] == ["wait", "check"]


def test_without_asynchronous_scheduling_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostError(RuntimeError):
        pass

    events: list[str] = []

    def lost() -> None:
        raise LostError

    def look() -> Callable[[], None]:
        events.append("look")
        return lost

    def to_list(sampled: torch.Tensor) -> list[list[int]]:
        events.append("wait")
        return list(sampled.tolist())

    monkeypatch.setattr(gpu_model_runner, "begin_peer_check", look)
    batch = SimpleNamespace(
        num_reqs=2, generators={}, req_ids=["a", "b"], req_id_to_index={"a": 0, "b": 1}, vocab_size=1024
    )
    runner = SimpleNamespace(
        use_async_scheduling=False,
        input_batch=batch,
        discard_request_mask=SimpleNamespace(np=np.zeros(2, dtype=bool)),
        _to_list=to_list,
    )
    sampled = SimpleNamespace(sampled_token_ids=torch.tensor(TOKENS), logprobs_tensors=None)
    with pytest.raises(LostError):
        gpu_model_runner.GPUModelRunner._bookkeeping_sync(runner, None, sampled, None, None, 2)
    assert events == ["look", "wait"]


def steps(rank: int, port: int, config: VllmConfig, words: Words) -> list[Any]:
    """Two steps of four sums; in the last sum of the second one rank 3 gives up, and the others do not notice."""
    me = Rank(rank, port, config, words)
    clock = Clock(me.patch)
    for module in (async_utils, gpu_model_runner):
        me.patch.setattr(module, "begin_peer_check", me.module.begin_peer_check)
    sent: list[Any] = []
    worker = SimpleNamespace(worker_response_mq=SimpleNamespace(enqueue=sent.append))
    for step in range(2):
        for number in range(4):
            me.memory.gives_up = (rank, step, number) == (3, 1, 3)
            x = part(rank, (6, HIDDEN), torch.bfloat16)
            out, _ = me.sum(x)
            assert torch.equal(out, exact((6, HIDDEN), torch.bfloat16)) != me.memory.gives_up
        torch.distributed.barrier()
        for output in (second_runner, first_runner):
            WorkerProc.enqueue_output(worker, output(clock))
    return [(status.name, getattr(result, "sampled_token_ids", result)) for status, result in sent]


def test_no_token_leaves_a_rank_after_a_sum_that_one_gave_up(config: VllmConfig) -> None:
    """Also where the rank's own sums are all right: what it gathers of the other's logits is not."""
    words = "results since then are NaN: drop them and use another all-reduce"
    # Four sums proved that it works.
    own = f"p2p_allreduce: rank 0 did not arrive within the deadline, in round 12; {words}"
    heard = f"p2p_allreduce: rank 3 had given up, in round 12; {words}"
    for rank, sent in enumerate(everywhere(steps, config, Words())):
        assert sent[:2] == [("SUCCESS", TOKENS)] * 2
        assert sent[2:] == [("FAILURE", own if rank == 3 else heard)] * 2
