"""mxfp8_gemv and mxfp8_grouped_gemv against the oracle, on a GPU."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kernels.common import formats, scale_layouts
from kernels.mxfp8_gemv import reference
from kernels.mxfp8_gemv.op import KS, mxfp8_gemv, mxfp8_grouped_gemv
from kernels.testing.gpu import bits, graph

GUARD = 4096
GROUPS = [(2, 1024, 4096), (1, 70, 4096), (3, 40, 1280), (1, 16, 576)]
NAN_CODE, NAN_SCALE = 0x7F, 0xFF


@dataclass(frozen=True)
class Matrix:
    """An MXFP8 matrix in numpy: codes [rows, K], scales [rows, K / 32]."""

    codes: np.ndarray
    scales: np.ndarray

    @property
    def values(self) -> np.ndarray:
        return reference.values(self.codes, self.scales)

    def rows(self, *which: int | None) -> "Matrix":
        return Matrix(self.codes[slice(*which)], self.scales[slice(*which)])

    def on_gpu(self, swizzled: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales, with NaN behind both and in whatever fills up a tile."""
        scales = scale_layouts.swizzle(self.scales, NAN_SCALE) if swizzled else self.scales.reshape(-1)
        codes = guarded(self.codes.reshape(-1), NAN_CODE).view(torch.float8_e4m3fn)
        return codes.view(self.codes.shape), guarded(scales, NAN_SCALE)


def packed(scales: np.ndarray, groups: int) -> torch.Tensor:
    """Scales [M * G, K / 32] as the fused quantizer of vLLM writes them, with NaN behind each row of words."""
    by_group = scales.reshape(-1, groups, scales.shape[1]).transpose(1, 0, 2)
    words = scale_layouts.pack(np.ascontiguousarray(by_group), NAN_SCALE)
    on_gpu = guarded(words.view(np.uint8).reshape(-1), NAN_SCALE).view(torch.int32).view(words.shape)
    return on_gpu.permute(2, 0, 1)[: by_group.shape[1]]


def by_group(x: torch.Tensor) -> torch.Tensor:
    """The same [M, G, K], with a group's rows beside each other in memory, and NaN between the groups."""
    m, g, k = x.shape
    whole = torch.full((g, m + 1, k), NAN_CODE, dtype=torch.uint8, device="cuda")
    whole[:, :m] = x.view(torch.uint8).transpose(0, 1)
    return whole.view(torch.float8_e4m3fn)[:, :m].transpose(0, 1)


def guarded(flat: np.ndarray, filler: int) -> torch.Tensor:
    whole = torch.full((flat.size + GUARD,), filler, dtype=torch.uint8, device="cuda")
    whole[: flat.size] = torch.from_numpy(np.ascontiguousarray(flat)).cuda()
    return whole[: flat.size]


def random(rows: int, k: int, seed: int, scales: tuple[int, int] = (112, 134)) -> Matrix:
    """Normal values, scales between two bytes."""
    generator = np.random.default_rng(seed)
    codes = formats.encode_e4m3(generator.standard_normal((rows, k)) * 8)
    return Matrix(codes, generator.integers(*scales, (rows, k // 32), dtype=np.uint8))


def any_bytes(rows: int, k: int, seed: int) -> Matrix:
    """Every finite code, scales wide apart."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, 256, (rows, k), dtype=np.uint8)
    codes[(codes & 0x7F) == NAN_CODE] = 0x3C
    return Matrix(codes, generator.integers(70, 161, (rows, k // 32), dtype=np.uint8))


def run(x: Matrix, weight: Matrix, swizzled: bool, dependent: bool = False) -> torch.Tensor:
    """Runs on poisoned memory; fails when a byte outside of the result is written."""
    m, n = len(x.codes), len(weight.codes)
    whole = torch.full((m * n + 2 * GUARD,), float("nan"), dtype=torch.bfloat16, device="cuda")
    out = whole[GUARD : GUARD + m * n].view(m, n)
    mxfp8_gemv(*x.on_gpu(swizzled), *weight.on_gpu(swizzled), swizzled=swizzled, out=out, dependent=dependent)
    assert whole[:GUARD].isnan().all() and whole[-GUARD:].isnan().all(), "wrote outside of out"
    return out


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.double().cpu().numpy())


def excess(out: torch.Tensor, x: Matrix, weight: Matrix) -> float:
    """The largest error over its bound."""
    error = np.abs(numbers(out) - reference.mxfp8_gemv(x.values, weight.values))
    return float(np.max(error / reference.bound(x.values, weight.values)))


@pytest.mark.sanitizer
@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
@pytest.mark.parametrize("n", [16, 200])
@pytest.mark.parametrize("k", KS)
def test_against_the_oracle(k: int, n: int, swizzled: bool) -> None:
    x, weight = random(16, k, k), random(n, k, n)
    for m in range(1, 17):
        out = run(x.rows(m), weight, swizzled, dependent=m % 2 == 0)
        assert excess(out, x.rows(m), weight) <= 1, f"M={m}"


@pytest.mark.parametrize("n", [17, 1152, 8200])
@pytest.mark.parametrize("k", KS)
def test_more_rows(k: int, n: int) -> None:
    x, weight = random(64, k, k + 1), random(n, k, n + 1)
    for m in (6, 17, 33, 64):
        assert excess(run(x.rows(m), weight, True), x.rows(m), weight) <= 1, f"M={m}"


@pytest.mark.parametrize("k", KS)
def test_every_byte(k: int) -> None:
    x, weight = any_bytes(16, k, 1), any_bytes(512, k, 2)
    assert excess(run(x, weight, True), x, weight) <= 1
    assert excess(run(x.rows(6), weight, False), x.rows(6), weight) <= 1


@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
@pytest.mark.parametrize("k", KS)
def test_exact(k: int, swizzled: bool) -> None:
    """A few small integers, and scales that are extreme (bytes 0 to 254) while their products are 1."""
    generator = np.random.default_rng(3)
    dense = np.zeros((16, k))
    dense[:, generator.permutation(k)[:24]] = generator.integers(-2, 3, (16, 24))
    encode = formats.encode_e4m3
    x = Matrix(encode(dense), np.full((16, k // 32), 127, dtype=np.uint8))
    codes = encode(generator.integers(-2, 3, (208, k)).astype(float))
    weight = Matrix(codes, np.full((208, k // 32), 127, dtype=np.uint8))
    for start, step, ours, theirs in ((0, 2, 3, 251), (1, 3, 254, 0)):
        x.scales[:, start::step], weight.scales[:, start::step] = ours, theirs
    for m in (6, 16):
        out = run(x.rows(m), weight, swizzled)
        assert np.array_equal(numbers(out), reference.mxfp8_gemv(x.rows(m).values, weight.values))


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize(
    ("code", "other", "scale", "other_scale"),
    [(0x7E, 0xFE, 127, 127), (0x01, 0x81, 127, 127), (0x7E, 0x7E, 0, 200), (0x01, 0x01, 254, 100)],
)
def test_extreme_values(k: int, code: int, other: int, scale: int, other_scale: int) -> None:
    x = Matrix(np.full((16, k), code, dtype=np.uint8), np.full((16, k // 32), scale, dtype=np.uint8))
    weight = Matrix(np.full((32, k), other, dtype=np.uint8), np.full((32, k // 32), other_scale, dtype=np.uint8))
    assert excess(run(x, weight, True), x, weight) <= 1


def test_overflow_is_infinite() -> None:
    x = Matrix(np.full((16, 1280), 0x7E, dtype=np.uint8), np.full((16, 40), 254, dtype=np.uint8))
    weight = Matrix(np.full((32, 1280), 0x7E, dtype=np.uint8), np.full((32, 40), 200, dtype=np.uint8))
    weight.codes[5] = 0xFE
    expected = np.full((16, 32), np.inf)
    expected[:, 5] = -np.inf
    assert np.array_equal(numbers(run(x, weight, True)), expected)


@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
@pytest.mark.parametrize("k", KS)
def test_nan_makes_no_number_and_stays_where_it_belongs(k: int, swizzled: bool) -> None:
    x, weight = random(16, k, 4), random(64, k, 5)
    x.codes[3, k - 1] = NAN_CODE
    x.scales[5, k // 32 - 1] = NAN_SCALE
    weight.codes[7, 0] = 0xFF
    weight.scales[63, 0] = NAN_SCALE
    expected = np.zeros((16, 64), dtype=bool)
    expected[[3, 5]] = expected[:, [7, 63]] = True
    assert np.array_equal(~np.isfinite(numbers(run(x, weight, swizzled))), expected)


@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
@pytest.mark.parametrize("k", KS)
def test_bits_of_a_row_are_its_own(k: int, swizzled: bool) -> None:
    x, weight = random(64, k, 6), random(1160, k, 7)
    whole = bits(run(x, weight, swizzled))
    for m in (1, 2, 6, 7, 8, 9, 15, 16, 17, 32, 33, 56):
        assert torch.equal(bits(run(x.rows(m), weight, swizzled)), whole[:m]), f"first {m}"
        assert torch.equal(bits(run(x.rows(m, None), weight, swizzled)), whole[m:]), f"from {m}"
    assert torch.equal(bits(run(x.rows(8), weight.rows(100, 333), swizzled)), whole[:8, 100:333])


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(6, 1792, 5120), (16, 4096, 1280), (6, 5120, 576), (64, 1024, 4096)])
def test_a_thousand_runs_have_the_same_bits(m: int, n: int, k: int, dependent: bool) -> None:
    tensors = (*random(m, k, 8).on_gpu(True), *random(n, k, 9).on_gpu(True))
    first = bits(mxfp8_gemv(*tensors, swizzled=True)).clone()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    for _ in range(1000):
        out.fill_(float("nan"))
        mxfp8_gemv(*tensors, swizzled=True, out=out, dependent=dependent)
        different += (bits(out) != first).sum()
    assert different.item() == 0


@pytest.mark.parametrize(("m", "k"), [(6, 288), (6, 1280), (16, 5120), (48, 4096)])
def test_result_of_the_kernel_ahead_is_seen(m: int, k: int) -> None:
    weight = random(256, k, 10).on_gpu(True)
    sources = [random(m, k, seed).on_gpu(True) for seed in range(11, 15)]
    expected = [bits(mxfp8_gemv(*source, *weight, swizzled=True)).clone() for source in sources]
    x, x_scale = (torch.empty_like(tensor) for tensor in sources[0])
    outs = [torch.empty(m, 256, dtype=torch.bfloat16, device="cuda") for _ in range(200)]

    def step(i: int) -> None:
        x_scale.copy_(sources[i % 4][1])
        bits(x).copy_(bits(sources[i % 4][0]))
        mxfp8_gemv(x, x_scale, *weight, swizzled=True, out=outs[i], dependent=True)

    captured = graph(step, len(outs))
    for _ in range(20):
        for out in outs:
            out.fill_(float("nan"))
        captured.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(bits(out), expected[i % 4]) for i, out in enumerate(outs))


@pytest.mark.sanitizer
@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
@pytest.mark.parametrize(
    ("groups", "n", "k", "is_packed"),
    [(g, n, k, False) for g, n, k in GROUPS] + [(g, n, k, True) for g, n, k in GROUPS if k % 128 == 0],
)
def test_groups(groups: int, n: int, k: int, swizzled: bool, is_packed: bool) -> None:
    x, weight = random(64 * groups, k, 15), random(groups * n, k, 16)
    w, w_scale = weight.on_gpu(swizzled)
    for m in (1, 6, 8, 16, 17, 32, 33, 64):
        some = x.rows(m * groups)
        codes, scales = some.on_gpu(swizzled)
        codes = codes.view(m, groups, k)
        whole = torch.full((m * groups * n + 2 * GUARD,), float("nan"), dtype=torch.bfloat16, device="cuda")
        out = whole[GUARD:-GUARD].view(m, groups, n)
        if is_packed:
            codes, scales = by_group(codes), packed(some.scales, groups)
        tensors = (codes, scales, w.view(groups, n, k), w_scale)
        mxfp8_grouped_gemv(*tensors, swizzled=swizzled, packed=is_packed, out=out, dependent=m % 2 == 0)
        assert whole[:GUARD].isnan().all() and whole[-GUARD:].isnan().all(), "wrote outside of out"
        for g in range(groups):
            ours = Matrix(some.codes[g::groups], some.scales[g::groups])
            theirs = weight.rows(g * n, (g + 1) * n)
            assert excess(out[:, g], ours, theirs) <= 1, f"M={m}, group {g}"


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_bits_of_a_row_and_group_are_their_own(groups: int) -> None:
    """wo_a at every TP: a row has one result in any batch, layout of its scales, and in the product of its group."""
    n, k = 1024, 4096
    x, weight = random(64 * groups, k, 23), random(groups * n, k, 24)
    (codes, x_scale), (w, w_scale) = x.on_gpu(True), weight.on_gpu(True)
    codes, w = codes.view(64, groups, k), w.view(groups, n, k)
    whole = mxfp8_grouped_gemv(codes, x_scale, w, w_scale, swizzled=True)
    for first, last in ((0, 1), (0, 8), (3, 19), (0, 32), (31, 64), (5, 64), (0, 63)):
        scales = packed(x.scales[first * groups : last * groups], groups)
        some = mxfp8_grouped_gemv(by_group(codes[first:last]), scales, w, w_scale, swizzled=True, packed=True)
        assert torch.equal(bits(some), bits(whole[first:last])), f"rows {first} to {last}"
    for g in range(groups):
        alone = run(Matrix(x.codes[g::groups], x.scales[g::groups]), weight.rows(g * n, (g + 1) * n), False)
        assert torch.equal(bits(alone), bits(whole[:, g])), f"group {g}"


def test_rows_of_x_apart() -> None:
    x, weight = random(16, 5120, 25), random(64, 5120, 26)
    codes, scales = x.on_gpu(True)
    wide = torch.full((16, 5120 + 48), NAN_CODE, dtype=torch.uint8, device="cuda")
    wide[:, :5120] = codes.view(torch.uint8)
    apart = wide.view(torch.float8_e4m3fn)[:, :5120]
    w = weight.on_gpu(True)
    expected = mxfp8_gemv(codes, scales, *w, swizzled=True)
    assert torch.equal(bits(mxfp8_gemv(apart, scales, *w, swizzled=True)), bits(expected))


@pytest.mark.parametrize("name", ["x_scale", "weight", "weight_scale", "out"])
def test_another_device(name: str) -> None:
    (x, x_scale), (weight, weight_scale) = random(3, 576, 17).on_gpu(False), random(16, 576, 18).on_gpu(False)
    out = torch.empty(3, 16, dtype=torch.bfloat16, device="cuda")
    arguments = {"x": x, "x_scale": x_scale, "weight": weight, "weight_scale": weight_scale, "out": out}
    arguments[name] = arguments[name].cpu()
    with pytest.raises(RuntimeError, match=f"mxfp8_gemv: {name}: is not on a CUDA device"):
        torch.ops.moet.mxfp8_gemv(*arguments.values(), False)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_second_gpu() -> None:
    here = (*random(6, 5120, 21).on_gpu(True), *random(1792, 5120, 22).on_gpu(True))
    there = mxfp8_gemv(*[tensor.to("cuda:1") for tensor in here], swizzled=True)
    assert torch.cuda.current_device() == 0
    assert torch.equal(bits(there.cpu()), bits(mxfp8_gemv(*here, swizzled=True).cpu()))
    with pytest.raises(RuntimeError, match="mxfp8_gemv: weight_scale: is on cuda:1; expected cuda:0, where x is"):
        mxfp8_gemv(*here[:3], here[3].to("cuda:1"), swizzled=True)


def test_torch_agrees_with_the_registration() -> None:
    tensors = (*random(6, 576, 19).on_gpu(False), *random(32, 576, 20).on_gpu(False))
    out = torch.zeros(6, 32, dtype=torch.bfloat16, device="cuda")
    # Its test of the schema multiplies the arguments, which torch cannot for FP8.
    tests = ("test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.moet.mxfp8_gemv.default, (*tensors, out, False), test_utils=tests)
