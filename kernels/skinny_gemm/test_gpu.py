"""skinny_gemm against the oracle, on a GPU."""

import numpy as np
import pytest
import torch

from kernels.skinny_gemm import reference
from kernels.skinny_gemm.op import MOST_ROWS, skinny_gemm
from kernels.testing.gpu import bits, graph, poisoned

# weights_proj, wk, routers, then the edges: least K, tails of a warp and of a block, two loads a thread, many tiles.
SHAPES = [(32, 5120), (128, 512), (384, 5120), (256, 7168)]
SHAPES += [(7, 8), (33, 264), (5, 1288), (3, 5128), (17, 10240), (2000, 512)]
TYPES = [torch.bfloat16, torch.float32]


def random(rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(rows, columns, device="cuda", generator=generator).bfloat16()


def with_poison_between(rows: torch.Tensor) -> torch.Tensor:
    """The same rows, apart by 24 elements of NaN, with more behind the last."""
    wide = torch.full((rows.shape[0] + 1, rows.shape[1] + 24), float("nan"), dtype=rows.dtype, device="cuda")
    wide[:-1, : rows.shape[1]] = rows
    return wide[:-1, : rows.shape[1]]


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.double().cpu().numpy())


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_against_the_oracle(n: int, k: int, dtype: torch.dtype) -> None:
    x, weight = with_poison_between(random(MOST_ROWS, k, 1)), with_poison_between(random(n, k, 2))
    exact = reference.skinny_gemm(numbers(x), numbers(weight))
    limit = reference.bound(numbers(x), numbers(weight), dtype == torch.bfloat16)
    for m in range(1, MOST_ROWS + 1):
        out, untouched = poisoned(m, n, dtype)
        skinny_gemm(x[:m], weight, out=out, dependent=m % 2 == 0)
        error = np.abs(numbers(out) - exact[:m])
        assert (error <= limit[:m]).all(), f"M={m}: error is {np.max(error / limit[:m]):.2f} times the bound"
        assert untouched(), f"M={m}: wrote outside of out"


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_bits_of_a_row_are_its_own(n: int, k: int) -> None:
    x, weight = random(MOST_ROWS, k, 3), random(n, k, 4)
    whole = skinny_gemm(x, weight)
    for m in range(1, MOST_ROWS):
        assert torch.equal(bits(skinny_gemm(x[:m], weight)), bits(whole[:m])), f"first {m}"
        assert torch.equal(bits(skinny_gemm(x[m:], weight)), bits(whole[m:])), f"from {m}"


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("m", [1, 6, 16])
def test_a_thousand_runs_have_the_same_bits(m: int, dependent: bool) -> None:
    x, weight = random(m, 5120, 5), random(384, 5120, 6)
    first = bits(skinny_gemm(x, weight)).clone()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    out = torch.empty(m, 384, dtype=torch.bfloat16, device="cuda")
    for _ in range(1000):
        out.fill_(float("nan"))
        skinny_gemm(x, weight, out=out, dependent=dependent)
        different += (bits(out) != first).sum()
    assert different.item() == 0


@pytest.mark.parametrize(("n", "k"), [(32, 5120), (128, 512), (17, 10240)])
def test_integers_are_exact(n: int, k: int) -> None:
    generator = torch.Generator(device="cuda").manual_seed(7)
    x, weight = (torch.randint(-8, 9, (rows, k), device="cuda", generator=generator).bfloat16() for rows in (16, n))
    out = skinny_gemm(x, weight, out_dtype=torch.float32)
    assert np.array_equal(numbers(out), reference.skinny_gemm(numbers(x), numbers(weight)))


def test_extremes() -> None:
    weight = torch.ones(32, 5120, dtype=torch.bfloat16, device="cuda")
    x = torch.ones(8, 5120, dtype=torch.bfloat16, device="cuda")
    largest, least = torch.finfo(torch.bfloat16).max, 2.0**-133
    x[1, 77] = float("nan")
    x[2, 5119] = float("inf")
    x[3, 0], x[3, 1] = float("inf"), -float("inf")
    x[4] = largest
    x[5] = -largest
    x[6] = 0
    x[7] = least
    out = skinny_gemm(x, weight, out_dtype=torch.float32)
    expected = [5120.0, float("nan"), float("inf"), float("nan"), float("inf"), -float("inf"), 0.0, 5120 * least]
    assert np.array_equal(numbers(out), np.repeat(np.array(expected)[:, None], 32, axis=1), equal_nan=True)


def test_result_of_the_kernel_ahead_is_seen() -> None:
    weight, sources = random(32, 5120, 8), [random(6, 5120, seed) for seed in range(9, 13)]
    expected = [skinny_gemm(source, weight).clone() for source in sources]
    x = torch.zeros_like(sources[0])
    outs = [torch.empty_like(expected[0]) for _ in range(200)]

    def step(i: int) -> None:
        torch.mul(sources[i % 4], 1, out=x)
        skinny_gemm(x, weight, out=outs[i], dependent=True)

    captured = graph(step, len(outs))
    for _ in range(20):
        for out in outs:
            out.fill_(float("nan"))
        captured.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(bits(out), bits(expected[i % 4])) for i, out in enumerate(outs))


def test_chain_of_dependent_launches() -> None:
    weights = [random(512, 512, seed) / 16 for seed in range(14, 18)]
    start = random(6, 512, 18)
    plain = start
    for weight in weights * 8:
        plain = skinny_gemm(plain, weight)
    for _ in range(50):
        chained = start
        for weight in weights * 8:
            chained = skinny_gemm(chained, weight, dependent=True)
        assert torch.equal(bits(chained), bits(plain))


def test_the_stream_of_the_caller() -> None:
    x, weight = random(6, 5120, 19), random(32, 5120, 20)
    expected = skinny_gemm(x, weight).clone()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        late = x * 1
        out = skinny_gemm(late, weight)
    side.synchronize()
    assert torch.equal(bits(out), bits(expected))


@pytest.mark.parametrize("name", ["weight", "out"])
def test_another_device(name: str) -> None:
    arguments = {"x": random(3, 64, 21), "weight": random(5, 64, 22), "out": random(3, 5, 23)}
    arguments[name] = arguments[name].cpu()
    with pytest.raises((RuntimeError, NotImplementedError), match=f"skinny_gemm: {name}: is not on a CUDA device"):
        torch.ops.moet.skinny_gemm(arguments["x"], arguments["weight"], arguments["out"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_second_gpu() -> None:
    x, weight = random(6, 5120, 29), random(384, 5120, 30)
    there = skinny_gemm(x.to("cuda:1"), weight.to("cuda:1"))
    assert torch.cuda.current_device() == 0
    assert torch.equal(bits(there.cpu()), bits(skinny_gemm(x, weight).cpu()))
    with pytest.raises(RuntimeError, match="skinny_gemm: weight: is on cuda:1; expected cuda:0, where x is"):
        skinny_gemm(x, weight.to("cuda:1"))


def test_torch_agrees_with_the_registration() -> None:
    arguments = (random(6, 512, 24), random(32, 512, 25), random(6, 32, 26))
    torch.library.opcheck(torch.ops.moet.skinny_gemm.default, arguments)


def test_under_torch_compile() -> None:
    x, weight = random(6, 512, 27), random(32, 512, 28)

    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return skinny_gemm(a + 1, b) * 2

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, weight), model(x, weight))
