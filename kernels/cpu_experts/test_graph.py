"""On a machine with a GPU: a captured graph whose step is computed by both, the GPU's experts and the CPU's."""

import ctypes
import functools
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.cpu_experts import made_up, reference
from kernels.cpu_experts.layout import Record, unpack_expert
from kernels.cpu_experts.op import CpuExperts, host_function

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LIMIT = 10.0


@functools.cache
def cudart() -> ctypes.CDLL:
    """The CUDA runtime that torch has loaded."""
    torch.cuda.init()
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcudart.so" in line:
            return ctypes.CDLL(line.split(maxsplit=5)[5])
    pytest.skip("torch has no libcudart.so of its own here")


def launch_host(stream: torch.cuda.Stream, name: str, address: int) -> None:
    status = cudart().cudaLaunchHostFunc(
        ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(host_function(name)), ctypes.c_void_p(address)
    )
    assert status == 0, status


def dequantized(record: Record, flat: np.ndarray, name: str) -> torch.Tensor:
    codes, scales = unpack_expert(record, flat)[name]
    values = reference.twice_values(codes) * 0.5 * np.repeat(reference.scale_values(scales), 32, axis=1)
    return torch.from_numpy(values.astype(np.float32)).cuda().bfloat16()


@dataclass
class Step:
    """Experts below `on_gpu` by torch on the GPU, the others on the CPU, and their sum."""

    record: Record
    records: dict[int, np.ndarray]
    on_gpu: int
    tokens: int
    slots: int
    tier: CpuExperts

    def __post_init__(self) -> None:
        record, cuda = self.record, {"device": "cuda"}
        self.weights = [
            [dequantized(record, self.records[e], name) for name in ("w1", "w3", "w2")] for e in range(self.on_gpu)
        ]
        self.x = torch.zeros(self.tokens, record.hidden, dtype=torch.bfloat16, **cuda)
        self.ids = torch.zeros(self.tokens, self.slots, dtype=torch.int32, **cuda)
        self.factors = torch.zeros(self.tokens, self.slots, **cuda)
        self.x_host, self.ids_host, self.factors_host = (
            torch.zeros(t.shape, dtype=t.dtype, pin_memory=True) for t in (self.x, self.ids, self.factors)
        )
        self.y_host = torch.zeros(self.tokens, record.hidden, pin_memory=True)
        self.y_cpu, self.y_gpu, self.y = (torch.zeros_like(self.y_host, device="cuda") for _ in range(3))
        self.job = self.tier.job(self.x_host, self.ids_host, self.factors_host, out32=self.y_host)

    def gpu_part(self) -> torch.Tensor:
        total = torch.zeros(self.tokens, self.record.hidden, device="cuda")
        for expert, (w1, w3, w2) in enumerate(self.weights):
            gate = (self.x @ w1.T).clamp(max=LIMIT)
            up = (self.x @ w3.T).clamp(-LIMIT, LIMIT)
            factor = torch.where(self.ids == expert, self.factors, 0).sum(1, keepdim=True)
            total += factor * ((torch.nn.functional.silu(gate) * up) @ w2.T)
        return total

    def down(self) -> None:
        """To the host; what the GPU computes is not for the CPU."""
        self.x_host.copy_(self.x, non_blocking=True)
        self.ids_host.copy_(torch.where(self.ids >= self.on_gpu, self.ids, -1), non_blocking=True)
        self.factors_host.copy_(self.factors, non_blocking=True)

    def capture(self, form: str) -> torch.cuda.CUDAGraph:
        main, side = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(main):
            self.down()
            self.gpu_part()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=main):
            if form == "branch":
                # The host node is a branch beside the GPU's own experts.
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    self.down()
                    launch_host(side, "run", self.job.address)
                    self.y_cpu.copy_(self.y_host, non_blocking=True)
                self.y_gpu.copy_(self.gpu_part())
                main.wait_stream(side)
            else:
                # One stream: submitted, then the GPU's own, then waited for.
                self.down()
                launch_host(main, "submit", self.job.address)
                self.y_gpu.copy_(self.gpu_part())
                launch_host(main, "wait", self.job.address)
                self.y_cpu.copy_(self.y_host, non_blocking=True)
            self.y.copy_(self.y_gpu + self.y_cpu)
        return graph


def made_step(hidden: int, intermediate: int, tokens: int, **more: object) -> Step:
    record, experts, slots = Record(hidden, intermediate), 8, 4
    records = {e: made_up.record(record, e) for e in range(experts)}
    tier = CpuExperts(hidden, intermediate, experts, slots, limit=LIMIT, **more)  # type: ignore[arg-type]
    for e in range(4, experts):
        tier.set_record(e, records[e])
    return Step(record, records, 4, tokens, slots, tier)


@dataclass
class Inputs:
    """So many steps' inputs, on the GPU before anything is replayed."""

    x: torch.Tensor
    ids: torch.Tensor
    factors: torch.Tensor

    @staticmethod
    def random(step: Step, count: int, seed: int) -> "Inputs":
        random = torch.Generator(device="cuda").manual_seed(seed)
        x = torch.randn(count, step.tokens, step.record.hidden, device="cuda", generator=random).bfloat16()
        # Different experts of each token, of the GPU's and the CPU's.
        order = torch.rand(count, step.tokens, 8, device="cuda", generator=random).argsort(2)
        factors = torch.rand(count, step.tokens, step.slots, device="cuda", generator=random)
        return Inputs(x, order[:, :, : step.slots].int().contiguous(), factors)

    def put(self, step: Step, number: int) -> None:
        step.x.copy_(self.x[number])
        step.ids.copy_(self.ids[number])
        step.factors.copy_(self.factors[number])


@pytest.fixture(params=["branch", "submit and wait"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_thousand_replays_without_a_pause(form: str) -> None:
    """Nothing waits for the host between replays: a race would be seen in one of the thousand sums."""
    step, count = made_step(512, 384, 6), 1000
    inputs = Inputs.random(step, count, 1)
    graph = step.capture(form)
    shape = (count, step.tokens, step.record.hidden)
    cpu, gpu, both = (torch.empty(shape, device="cuda") for _ in range(3))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in range(count):
            inputs.put(step, number)
            graph.replay()
            cpu[number].copy_(step.y_cpu)
            gpu[number].copy_(step.y_gpu)
            both[number].copy_(step.y)
    torch.cuda.synchronize()
    step.job.check()

    # The CPU's part once more, by other threads and another instruction set, outside a graph.
    other = CpuExperts(512, 384, 8, step.slots, limit=LIMIT, isa="avx2", threads=3)
    for expert in range(4, 8):
        other.set_record(expert, step.records[expert])
    ids = torch.where(inputs.ids >= 4, inputs.ids, -1).cpu().numpy()
    x, factors = inputs.x.cpu(), inputs.factors.cpu().numpy()
    again = np.stack([other(x[n], ids[n], factors[n]) for n in range(count)])
    assert np.array_equal(cpu.cpu().numpy().view(np.uint32), again.view(np.uint32))
    # The GPU's, eagerly; and the sum of the two.
    for number in range(count):
        inputs.put(step, number)
        assert torch.equal(step.gpu_part(), gpu[number])
    assert torch.equal(cpu + gpu, both)
    assert len(np.unique(again.reshape(count, -1), axis=0)) == count
    # And the contract itself.
    for number in range(0, count, 250):
        words = x[number].view(torch.int16).numpy().view(np.uint16)
        want = reference.experts(step.record, step.records, words, ids[number], factors[number], LIMIT)
        assert np.array_equal(want.view(np.uint32), again[number].view(np.uint32))


def test_the_models_size(form: str) -> None:
    step, count = made_step(5120, 2304, 6), 40
    inputs = Inputs.random(step, count, 2)
    graph = step.capture(form)
    sums = []
    for number in range(count):
        inputs.put(step, number)
        graph.replay()
        sums.append(step.y.clone())
    torch.cuda.synchronize()
    step.job.check()
    other = CpuExperts(5120, 2304, 8, step.slots, limit=LIMIT, isa="avx2", cores=step.tier.cores)
    for expert in range(4, 8):
        other.set_record(expert, step.records[expert])
    for number in range(count):
        inputs.put(step, number)
        ids = torch.where(inputs.ids[number] >= 4, inputs.ids[number], -1).cpu()
        cpu = torch.from_numpy(other(inputs.x[number].cpu(), ids, inputs.factors[number].cpu())).cuda()
        assert torch.equal(step.gpu_part() + cpu, sums[number])


def test_an_expert_without_a_record_is_nan_and_said() -> None:
    step = made_step(256, 128, 2)
    graph = step.capture("branch")
    inputs = Inputs.random(step, 1, 3)
    inputs.put(step, 0)
    step.ids.fill_(9)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.isnan(step.y).all()
    with pytest.raises(RuntimeError, match="has no record"):
        step.job.check()
    inputs.put(step, 0)
    graph.replay()
    torch.cuda.synchronize()
    step.job.check()
    assert not torch.isnan(step.y).any()


def test_two_graphs_of_one_tier() -> None:
    """Host nodes of two streams at a time: their jobs are queued."""
    first = made_step(256, 256, 3)
    second = Step(first.record, first.records, 4, 5, first.slots, first.tier)
    graphs, steps, count = [first.capture("branch"), second.capture("branch")], [first, second], 200
    inputs = [Inputs.random(step, count, seed) for seed, step in enumerate(steps)]
    found: list[list[torch.Tensor]] = [[], []]
    torch.cuda.synchronize()

    def go(at: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for number in range(count):
                inputs[at].put(steps[at], number)
                graphs[at].replay()
                found[at].append(steps[at].y_cpu.clone())

    threads = [threading.Thread(target=go, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    for at, step in enumerate(steps):
        for number in range(count):
            ids = torch.where(inputs[at].ids[number] >= 4, inputs[at].ids[number], -1).cpu()
            want = step.tier(inputs[at].x[number].cpu(), ids, inputs[at].factors[number].cpu())
            assert np.array_equal(found[at][number].cpu().numpy().view(np.uint32), want.view(np.uint32))
