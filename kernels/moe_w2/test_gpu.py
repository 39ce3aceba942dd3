"""moe_w2 against the oracle, on a GPU."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.common import formats, planes
from kernels.moe_w2 import reference
from kernels.moe_w2.op import Slots, moe_w2
from kernels.testing.gpu import bits, graph

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]

GUARD = 4096
# The models' K, their shards on 2 and 4 GPUs, and some that no model has.
KS = (5120, 4096, 6144, 7168, 2048, 2304, 2560, 1280, 1024, 3072, 1536, 3584, 1792, 1152, 576, 512, 64, 128, 192, 6976)
MODES = ("base", "delta", "own scales")
EXPERTS = 12
NAN_CODE, NAN_SCALE = 0x7F, 0xFF


@dataclass(frozen=True)
class Matrices:
    """Codes or nibbles of experts [count, parts, N, K], and their scales [count, parts, N, K / 32]."""

    values: Bytes
    scales: Bytes
    is_delta: bool

    def weights(self, which: int) -> Doubles:
        """The numbers of one, its parts beside each other: [parts * N, K]."""
        decode = planes.decode_nibbles if self.is_delta else planes.decode
        decoded = decode(self.values[which], self.scales[which])
        return decoded.reshape(-1, decoded.shape[-1])

    def with_scales(self, scales: Bytes) -> "Matrices":
        """The same codes or nibbles with other scales."""
        return Matrices(self.values, scales, self.is_delta)


def random(count: int, parts: int, n: int, k: int, seed: int, is_delta: bool = False) -> Matrices:
    """Random codes or nibbles, and scales around 1."""
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 16 if is_delta else 4, (count, parts, n, k), dtype=np.uint8)
    return Matrices(values, generator.integers(116, 130, (count, parts, n, k // 32), dtype=np.uint8), is_delta)


def random_x(shape: tuple[int, ...], seed: int) -> tuple[Bytes, Bytes]:
    """Codes and scales of x, of that shape and a 32nd as wide."""
    generator = np.random.default_rng(seed)
    codes = formats.encode_e4m3(generator.standard_normal(shape) * 8)
    return codes, generator.integers(116, 130, (*shape[:-1], shape[-1] // 32), dtype=np.uint8)


def slots_on_gpu(matrices: Matrices, slots: list[int], experts: int, total: int, own_scales: bool = True) -> Slots:
    """Matrix i in slot slots[i] as expert i's, -1 for none; other slots, and what lies between two, are NaN.

    Args:
        matrices: of as many experts as `slots` has.
        slots: of each.
        experts: in the table; those without matrices have no slot.
        total: slots in memory.
        own_scales: False for a delta whose scales are those of the base.
    """
    count, parts = matrices.values.shape[:2]
    pack = planes.pack_nibbles if matrices.is_delta else planes.pack_codes
    packed, scales = pack(matrices.values), planes.pack_scales(matrices.scales)
    width, scale_width = packed.shape[-1], scales.shape[-1]
    # As in a slot of the pack: a plane, its scales, the next part.
    memory = np.full((total, parts, width + scale_width + 48), NAN_SCALE, dtype=np.uint8)
    table = np.full(experts, -1, dtype=np.int32)
    table[:count] = slots
    for i, slot in enumerate(slots):
        if slot >= 0:
            memory[slot, :, :width] = packed[i]
            memory[slot, :, width : width + scale_width] = scales[i] if own_scales else NAN_SCALE
    there = torch.from_numpy(memory).cuda()
    return Slots(
        there[:, :, :width],
        there[:, :, width : width + scale_width] if own_scales else None,
        torch.from_numpy(table).cuda(),
    )


def x_on_gpu(codes: Bytes, scales: Bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """x and its scales, with NaN behind every row of both."""
    wide = np.full((*codes.shape[:-1], codes.shape[-1] + 32), NAN_CODE, dtype=np.uint8)
    wide[..., : codes.shape[-1]] = codes
    wide_scales = np.full((*scales.shape[:-1], scales.shape[-1] + 3), NAN_SCALE, dtype=np.uint8)
    wide_scales[..., : scales.shape[-1]] = scales
    x = torch.from_numpy(wide).cuda().view(torch.float8_e4m3fn)[..., : codes.shape[-1]]
    return x, torch.from_numpy(wide_scales).cuda()[..., : scales.shape[-1]]


@dataclass
class Case:
    """Experts of which some are in the base, some in the delta, some in both and some in neither."""

    base: Matrices
    delta: Matrices | None
    base_slots: list[int]
    delta_slots: list[int] = field(default_factory=list)
    own_scales: bool = True

    def weights(self) -> dict[int, Doubles]:
        """What the oracle multiplies by, of the experts that have any."""
        result = {i: self.base.weights(i) for i, slot in enumerate(self.base_slots) if slot >= 0}
        for i, slot in enumerate(self.delta_slots):
            if self.delta is None or slot < 0 or (not self.own_scales and i not in result):
                continue
            scaled = self.delta if self.own_scales else self.delta.with_scales(self.base.scales)
            result[i] = scaled.weights(i)
        return result

    def on_gpu(self) -> tuple[Slots, Slots | None]:
        base = slots_on_gpu(self.base, self.base_slots, EXPERTS, EXPERTS + 3)
        if self.delta is None:
            return base, None
        return base, slots_on_gpu(self.delta, self.delta_slots, EXPERTS, EXPERTS + 1, self.own_scales)

    @property
    def rows(self) -> int:
        return int(np.prod(self.base.values.shape[1:3]))


def case(mode: str, n: int, k: int, parts: int = 1, seed: int = 0) -> Case:
    """Ten experts that have matrices: 0 to 6 in the base; of the delta 4 to 8."""
    base = random(10, parts, n, k, seed)
    base_slots = [5, 0, 14, 2, 9, 1, 7, -1, -1, -1]
    if mode == "base":
        return Case(base, None, base_slots)
    delta = random(10, parts, n, k, seed + 1, is_delta=True)
    return Case(base, delta, base_slots, [-1, -1, -1, -1, 3, 0, 12, 8, 4, -1], own_scales=mode == "own scales")


def routes(m: int, top: int, seed: int, low: int = 0) -> np.ndarray:
    """Distinct experts for each row."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.permutation(np.arange(low, EXPERTS))[:top] for _ in range(m)]).astype(np.int32)


def run(
    case: Case,
    x: tuple[Bytes, Bytes],
    ids: np.ndarray,
    dtype: torch.dtype = torch.bfloat16,
    slots: tuple[Slots, Slots | None] | None = None,
    dependent: bool = False,
    routed: bool = False,
) -> tuple[torch.Tensor, int]:
    """Runs on poisoned memory; fails when a byte outside of the result is written. Returns it, and what was missing."""
    size = ids.size * case.rows
    whole = torch.full((size + 2 * GUARD,), float("nan"), dtype=dtype, device="cuda")
    out = whole[GUARD : GUARD + size].view(*ids.shape, case.rows)
    counter = torch.full((3,), 1000, dtype=torch.int32, device="cuda")
    there = torch.from_numpy(np.ascontiguousarray(ids)).cuda()
    base, delta = slots or case.on_gpu()
    options = {"dependent": dependent, "routed": routed}
    moe_w2(*x_on_gpu(*x), there, base, delta, missing=counter[1:2], out=out, **options)
    assert whole[:GUARD].isnan().all() and whole[-GUARD:].isnan().all(), "wrote outside of out"
    assert counter[0] == 1000 and counter[2] == 1000, "wrote outside of missing"
    return out, int(counter[1]) - 1000


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.double().cpu().numpy())


def check(
    case: Case, x: tuple[Bytes, Bytes], ids: np.ndarray, dtype: torch.dtype = torch.bfloat16, **more: object
) -> None:
    """Fails when an output is farther from the oracle's than its bound, or other pairs are missing."""
    out, missing = run(case, x, ids, dtype, **more)  # type: ignore[arg-type]
    weights, values = case.weights(), reference.x_values(*x)
    expected = reference.moe_w2(values, ids, weights, case.rows)
    bound = reference.bound(values, ids, weights, case.rows, dtype == torch.bfloat16)
    error = np.abs(numbers(out) - expected)
    assert np.all(error <= bound), f"{np.nanmax(error / np.maximum(bound, 1e-300))} times its bound"
    assert missing == reference.missing(ids, weights)


@pytest.mark.sanitizer
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", KS)
def test_against_the_oracle(k: int, mode: str) -> None:
    problem = case(mode, 32, k, seed=k)
    slots = problem.on_gpu()
    x = random_x((16, k), k)
    for m in (1, 2, 7, 8, 9, 16):
        ids = routes(m, min(8, 1 + m % 8), m)
        dtype = torch.float32 if m % 2 else torch.bfloat16
        check(problem, (x[0][:m], x[1][:m]), ids, dtype, slots=slots, dependent=m == 8, routed=m in (8, 9))


@pytest.mark.parametrize("mode", MODES)
def test_every_number_of_rows_and_experts(mode: str) -> None:
    problem = case(mode, 32, 576)
    slots = problem.on_gpu()
    x = random_x((16, 576), 1)
    for m in range(1, 17):
        for top in range(1, 9):
            check(problem, (x[0][:m], x[1][:m]), routes(m, top, 8 * m + top), torch.float32, slots=slots)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("n", "k", "parts"),
    [
        (1152, 5120, 2),
        (576, 5120, 2),
        (5120, 1152, 1),
        (1024, 4096, 2),
        (6144, 2048, 1),
        (1024, 6144, 2),
        (7168, 512, 1),
    ],
)
def test_shapes_of_models(n: int, k: int, parts: int, mode: str) -> None:
    """w1 beside w3, and w2, of shards and whole; few experts, since the oracle is slow."""
    problem = case(mode, n, k, parts, seed=3)
    x = random_x((3, k), 2)
    check(problem, x, np.array([[0, 4, 11], [4, 2, 7], [-1, 5, 0]], dtype=np.int32), slots=problem.on_gpu())


@pytest.mark.sanitizer
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [2304, 1024, 192])
def test_x_of_each_pair(k: int, mode: str) -> None:
    problem = case(mode, 64, k, seed=4)
    slots = problem.on_gpu()
    for m, top in ((1, 8), (6, 6), (16, 8), (16, 1)):
        check(problem, random_x((m, top, k), m), routes(m, top, m), torch.float32, slots=slots)


@pytest.mark.sanitizer
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize("expert", [3, 5])
def test_one_expert_for_all(expert: int, by_pair: bool, mode: str) -> None:
    """Up to sixteen groups of the same expert: one a row, and all of a row's."""
    problem = case(mode, 48, 640, seed=5)
    slots = problem.on_gpu()
    for m, top in ((16, 1), (9, 1), (16, 8), (5, 3)):
        x = random_x((m, top, 640) if by_pair else (m, 640), m)
        check(problem, x, np.full((m, top), expert, dtype=np.int32), slots=slots)


def test_experts_that_rows_have_twice() -> None:
    problem = case("delta", 48, 1280, seed=6)
    ids = np.random.default_rng(7).integers(-1, 7, (16, 8), dtype=np.int32)
    check(problem, random_x((16, 1280), 8), ids, torch.float32)


@pytest.mark.sanitizer
@pytest.mark.parametrize("mode", MODES)
def test_all_missing(mode: str) -> None:
    problem = case(mode, 4096, 512, seed=9)
    slots = problem.on_gpu()
    for m, top, expected in ((16, 8, 128), (1, 1, 1)):
        out, missing = run(problem, random_x((m, 512), 1), np.full((m, top), 9, dtype=np.int32), slots=slots)
        assert missing == expected and torch.equal(bits(out), torch.zeros_like(bits(out)))


def test_padding_is_not_missing() -> None:
    problem = case("base", 64, 512, seed=9)
    ids = np.array([[-1, 3, -1], [-5, -1, -1], [8, -1, 1]], dtype=np.int32)
    out, missing = run(problem, random_x((3, 512), 1), ids)
    assert missing == 1 and not out[1].any() and not out[0, 0].any() and out[0, 1].any()


def test_numbers_that_are_no_expert_or_slot_are_missing() -> None:
    problem = case("own scales", 64, 512, seed=9)
    base, delta = problem.on_gpu()
    assert delta is not None
    base.table[2], delta.table[4], delta.table[8] = base.planes.shape[0], delta.planes.shape[0], -(2**31)
    del problem.delta_slots[:]
    problem.base_slots[2] = -1
    problem.delta_slots += [-1, -1, -1, -1, -1, 0, 12, 8, -1, -1]
    ids = np.array([[2, 4, EXPERTS, 2**31 - 1], [8, 5, 7, 0]], dtype=np.int32)
    check(problem, random_x((2, 512), 1), ids, slots=(base, delta))
    _, missing = run(problem, random_x((2, 512), 1), ids, slots=(base, delta))
    assert missing == 4


@pytest.mark.parametrize("mode", MODES)
def test_every_code_is_exact(mode: str) -> None:
    """x with one number a row other than zero, extreme scales whose products are 1."""
    problem = case(mode, 64, 256, seed=10)
    generator = np.random.default_rng(11)
    codes = np.zeros((16, 256), dtype=np.uint8)
    where = generator.permutation(256)[:16]
    codes[np.arange(16), where] = formats.encode_e4m3(np.arange(1.0, 17.0))
    scales = np.full((16, 8), 127, dtype=np.uint8)
    for matrices in (problem.base, problem.delta):
        if matrices is not None:
            matrices.scales[..., :] = [127, 240, 14, 140, 127, 20, 100, 127]
    scales[:] = [127, 14, 240, 114, 127, 234, 154, 127]
    for low in range(0, 16, 4):
        ids = routes(16, 8, low)
        out, _ = run(problem, (codes, scales), ids, torch.float32)
        expected = reference.moe_w2(reference.x_values(codes, scales), ids, problem.weights(), 64)
        assert np.array_equal(numbers(out), expected)


@pytest.mark.parametrize("mode", MODES)
def test_nan_stays_where_it_belongs(mode: str) -> None:
    problem = case(mode, 48, 640, seed=12)
    codes, scales = random_x((6, 640), 13)
    codes[2, 639], scales[3, 19] = 0xFF, NAN_SCALE
    for matrices in (problem.base, problem.delta):
        if matrices is not None:
            matrices.scales[5, 0, 17, 3] = NAN_SCALE
    ids = np.array([[0, 5], [4, 6], [1, 5], [2, 3], [5, 1], [6, 0]], dtype=np.int32)
    found = ~np.isfinite(numbers(run(problem, (codes, scales), ids)[0]))
    expected = np.zeros((6, 2, 48), dtype=bool)
    expected[[2, 3]] = True
    expected[ids == 5, 17] = True
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("k", [5120, 2304, 576, 64])
def test_bits_of_a_pair_are_its_own(k: int, dtype: torch.dtype) -> None:
    """Whatever rows and experts are beside it, in whichever slot its expert lies, and whoever is promoted."""
    problem = case("own scales", 80, k, seed=14)
    slots = problem.on_gpu()
    x, ids = random_x((16, k), 15), routes(16, 8, 16)
    whole, _ = run(problem, x, ids, dtype, slots=slots)
    whole = bits(whole).view(16, 8, -1)
    for first, last in ((0, 1), (3, 4), (0, 8), (7, 16), (5, 14)):
        some, _ = run(problem, (x[0][first:last], x[1][first:last]), ids[first:last], dtype, slots=slots)
        assert torch.equal(bits(some).view(last - first, 8, -1), whole[first:last]), f"rows {first} to {last}"
    columns = [6, 1, 3]
    some, _ = run(problem, x, ids[:, columns], dtype, slots=slots)
    assert torch.equal(bits(some).view(16, 3, -1), whole[:, columns])
    moved = replace(
        problem, base_slots=[1, 2, 3, 4, 5, 6, 0, -1, -1, -1], delta_slots=[-1, 9, -1, -1, 5, 6, 7, 0, 2, -1]
    )
    some, _ = run(moved, x, ids, dtype)
    same = torch.from_numpy(ids != 1).cuda()
    assert torch.equal(bits(some).view(16, 8, -1)[same], whole[same])
    pairs = np.broadcast_to(x[0][:, None], (16, 8, k)), np.broadcast_to(x[1][:, None], (16, 8, k // 32))
    some, _ = run(problem, pairs, ids, dtype, slots=slots)
    assert torch.equal(bits(some).view(16, 8, -1), whole)
    column = int(np.argmax(ids[0] < 7))
    crowd = np.full((16, 8), ids[0, column], dtype=np.int32)
    some, _ = run(problem, x, crowd, dtype, slots=slots)
    assert torch.equal(bits(some).view(16, 8, -1)[0], whole[0, column : column + 1].expand(8, -1))


@pytest.mark.parametrize(("dependent", "routed"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), [(6, 1152, 5120), (16, 5120, 576), (1, 512, 2048)])
def test_a_thousand_runs_have_the_same_bits(m: int, n: int, k: int, dependent: bool, routed: bool) -> None:
    problem = case("delta", n, k, seed=17)
    base, delta = problem.on_gpu()
    x, ids = x_on_gpu(*random_x((m, k), 18)), torch.from_numpy(routes(m, 6, 19)).cuda()
    missing = torch.zeros(1, dtype=torch.int32, device="cuda")
    first = bits(moe_w2(*x, ids, base, delta, missing=missing)).clone()
    each = int(missing)
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    out = torch.empty(m, 6, n, dtype=torch.bfloat16, device="cuda")
    for _ in range(1000):
        out.fill_(float("nan"))
        moe_w2(*x, ids, base, delta, missing=missing, out=out, dependent=dependent, routed=routed)
        different += (bits(out) != first).sum()
    assert different.item() == 0 and int(missing) == 1001 * each


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize(("m", "k"), [(1, 5120), (6, 1152), (16, 2048)])
def test_result_of_the_kernel_ahead_is_seen(m: int, k: int, routed: bool) -> None:
    """x and its scales, and unless `routed` the experts, are written by the kernels ahead."""
    problem = case("delta", 256, k, seed=20)
    base, delta = problem.on_gpu()
    sources = [x_on_gpu(*random_x((m, k), seed)) for seed in range(21, 25)]
    choices = [torch.from_numpy(routes(m, 6, 5 if routed else seed)).cuda() for seed in range(4)]
    missing = torch.zeros(1, dtype=torch.int32, device="cuda")
    expected = [
        bits(moe_w2(*source, ids, base, delta, missing=missing)).clone()
        for source, ids in zip(sources, choices, strict=True)
    ]
    x, x_scale, ids = sources[0][0].clone(), sources[0][1].clone(), choices[0].clone()
    outs = [torch.empty(m, 6, 256, dtype=torch.bfloat16, device="cuda") for _ in range(200)]

    def step(i: int) -> None:
        if not routed:
            ids.copy_(choices[i % 4])
        x_scale.copy_(sources[i % 4][1])
        x.view(torch.uint8).copy_(sources[i % 4][0].view(torch.uint8))
        moe_w2(x, x_scale, ids, base, delta, missing=missing, out=outs[i], dependent=True, routed=routed)

    captured = graph(step, len(outs))
    for _ in range(20):
        for out in outs:
            out.fill_(float("nan"))
        captured.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(bits(out), expected[i % 4]) for i, out in enumerate(outs))


def test_tables_may_change_between_replays() -> None:
    """A miss gives zero and counts; after its expert arrived, the same graph gives what a resident expert does."""
    problem = case("base", 64, 1024, seed=25)
    base, _ = problem.on_gpu()
    x, ids = x_on_gpu(*random_x((4, 1024), 26)), torch.tensor([[0, 3], [3, 1], [2, 4], [3, 0]]).int().cuda()
    missing = torch.zeros(1, dtype=torch.int32, device="cuda")
    resident = moe_w2(*x, ids, base, missing=missing)
    out = torch.empty_like(resident)
    captured = graph(lambda _: moe_w2(*x, ids, base, missing=missing, out=out), 1)
    slot = base.table[3].clone()
    base.table[3] = -1
    missing.zero_()
    captured.replay()
    assert int(missing) == 3 and not out[0, 1].any() and torch.equal(bits(out[2]), bits(resident[2]))
    base.table[3] = slot
    missing.zero_()
    captured.replay()
    assert int(missing) == 0 and torch.equal(bits(out), bits(resident))


@pytest.mark.parametrize("name", ["x_scale", "topk_ids", "planes", "scales", "table", "delta_planes", "out", "missing"])
def test_another_device(name: str) -> None:
    problem = case("own scales", 16, 64)
    base, delta = problem.on_gpu()
    assert delta is not None
    x, x_scale = x_on_gpu(*random_x((2, 64), 1))
    arguments = {
        "x": x,
        "x_scale": x_scale,
        "topk_ids": torch.zeros(2, 3, dtype=torch.int32, device="cuda"),
        **base._asdict(),
        **{f"delta_{key}": value for key, value in delta._asdict().items()},
        "out": torch.empty(2, 3, 16, dtype=torch.bfloat16, device="cuda"),
        "missing": torch.zeros(1, dtype=torch.int32, device="cuda"),
    }
    moved = torch.empty_strided(arguments[name].shape, arguments[name].stride(), dtype=arguments[name].dtype)
    arguments[name] = moved
    with pytest.raises(RuntimeError, match=f"moe_w2: {name}: is not on a CUDA device"):
        torch.ops.moet.moe_w2(*arguments.values())


def test_torch_agrees_with_the_registration() -> None:
    problem = case("own scales", 32, 128)
    base, delta = problem.on_gpu()
    assert delta is not None
    ids = torch.from_numpy(routes(3, 2, 1)).cuda()
    out, missing = torch.zeros(3, 2, 32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    arguments = (*x_on_gpu(*random_x((3, 128), 1)), ids, *base, *delta, out, missing)
    # Its test of the schema multiplies the arguments, which torch cannot for FP8.
    tests = ("test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.moet.moe_w2.default, arguments, test_utils=tests)
