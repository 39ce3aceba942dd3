"""What tests and benches on a GPU share."""

import statistics
from collections.abc import Callable

import torch

# Enough to be several times any L2.
_ROTATED_BYTES = 320 << 20


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, so that NaN equals NaN and -0 is not 0."""
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])


def poisoned(rows: int, columns: int, dtype: torch.dtype, guard: int = 16) -> tuple[torch.Tensor, Callable[[], bool]]:
    """A tensor of NaN in the midst of more NaN, and a function that says whether what surrounds it is untouched."""
    whole = torch.full((rows + 2 * guard, columns + 2 * guard), float("nan"), dtype=dtype, device="cuda")
    before = bits(whole).clone()
    inner = whole[guard : guard + rows, guard : guard + columns]

    def untouched() -> bool:
        after = bits(whole).clone()
        after[guard : guard + rows, guard : guard + columns] = before[guard : guard + rows, guard : guard + columns]
        return bool(torch.equal(after, before))

    return inner, untouched


def graph(function: Callable[[int], object], launches: int) -> torch.cuda.CUDAGraph:
    """Captures function(0), function(1) ... in one graph; each ran once before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(min(3, launches)):
            function(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for i in range(launches):
            function(i)
    return captured


def microseconds(function: Callable[[int], object], launches: int, repeats: int = 20) -> float:
    """Median time of a launch, in microseconds, over replays of a graph of `launches`."""
    captured = graph(function, launches)
    times: list[float] = []
    for i in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        captured.replay()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times)


def copy_rate() -> float:
    """Bytes read and written a second by a large copy on this GPU."""
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    times: list[float] = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return 2 * int(source.numel()) / statistics.median(times[5:])


def warm_up() -> None:
    """Brings the clocks up."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()


def sets(bytes_each: int, least: int = 3, most: int = 1000) -> int:
    """How many sets of weights to rotate among, so that none is in the L2 when its turn comes."""
    return max(least, min(most, -(-_ROTATED_BYTES // bytes_each)))
