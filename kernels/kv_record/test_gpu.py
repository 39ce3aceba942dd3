"""kv_record, kv_record_key and kv_record_gather against the oracle, on a GPU: every byte of the cache and around it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.common import formats
from kernels.kv_record import reference
from kernels.kv_record.op import DIMS, PAGE_SIZES, kv_record, kv_record_gather, kv_record_key
from kernels.testing.gpu import bits, graph

POISON = 0xA5
GUARD = 512  # bytes before and after the cache
EPS = 1e-6
KNOWN = 4096

RECORDS = (528, 288)
WIDTHS = (528, 288, 68)

every_width = pytest.mark.parametrize("width", WIDTHS)
every_page = pytest.mark.parametrize("page", PAGE_SIZES)


def cos_sin(known: int = KNOWN) -> torch.Tensor:
    """A table of which row 0 is the identity, as angles of 0 are."""
    frequencies = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    angles = torch.arange(known, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).float().cuda()


@dataclass(frozen=True)
class Case:
    """Rows on the GPU, and where they go."""

    rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    width: int
    page: int = 32
    pages: int = 8
    padding: int = 0
    ratio: int = 1
    dependent: bool = False
    weight: torch.Tensor | None = None
    eps: float = EPS

    def write(self, cache: torch.Tensor, table: torch.Tensor) -> None:
        """Runs the operator."""
        how: dict[str, Any] = {"compress_ratio": self.ratio, "dependent": self.dependent}
        where = (self.rows, self.positions, table, self.slots)
        if self.weight is None:
            kv_record(*where, cache, **how)
        else:
            kv_record_key(*where, self.weight, cache, eps=self.eps, **how)


class Cache:
    """Pages of POISON bytes in the midst of more of them."""

    def __init__(self, case: Case) -> None:
        self.stride = case.page * case.width + case.padding
        size = case.pages * self.stride
        self._whole = torch.full((size + 2 * GUARD,), POISON, dtype=torch.uint8, device="cuda")
        inner = self._whole[GUARD : GUARD + size]
        self.view = inner.as_strided((case.pages, case.page, case.width), (self.stride, case.width, 1))

    def memory(self) -> np.ndarray:
        """The pages as they are: [pages, bytes from one to the next]. Fails where anything around them was written."""
        whole: np.ndarray = self._whole.cpu().numpy()
        assert (whole[:GUARD] == POISON).all() and (whole[-GUARD:] == POISON).all()
        return whole[GUARD:-GUARD].reshape(-1, self.stride)


def numbers(tensor: torch.Tensor) -> Any:
    return tensor.float().cpu().numpy() if tensor.is_floating_point() else tensor.cpu().numpy()


def expected(case: Case, table: torch.Tensor) -> np.ndarray:
    """The oracle's memory."""
    count = len(case.slots)
    record = reference.RECORDS[case.width]
    rows, slots = numbers(case.rows[:count]), numbers(case.slots)
    positions = numbers(case.positions[:count])
    live = reference.written(positions, slots, case.pages * case.page, len(table), case.ratio)
    rows, positions = rows[live], positions[live]
    if case.weight is not None:
        rows = reference.normalize(rows, numbers(case.weight), case.eps)
    rotated = reference.rotate(rows, numbers(table)[reference.first_of_group(positions, case.ratio)])
    memory = np.full((case.pages, case.page * case.width + case.padding), POISON, dtype=np.uint8)
    reference.store(memory, case.page, slots[live], record.encode(rotated))
    return memory


def check(case: Case, table: torch.Tensor | None = None) -> None:
    """Compares every byte of the pages, of what is between them, and around them."""
    table = cos_sin() if table is None else table
    cache = Cache(case)
    case.write(cache.view, table)
    found, right = cache.memory(), expected(case, table)
    wrong = np.argwhere(found != right)
    assert not len(wrong), f"{len(wrong)} bytes differ, the first at {wrong[0]}"


def random_rows(count: int, dims: int, seed: int = 1) -> torch.Tensor:
    """Rows whose groups of 16 have magnitudes of their own."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    magnitudes = torch.exp2(torch.randint(-12, 13, (count, -(-dims // 16)), device="cuda", generator=generator).float())
    spread = magnitudes.repeat_interleave(16, dim=1)[:, :dims]
    return (torch.randn(count, dims, device="cuda", generator=generator) * spread).bfloat16()


def random_case(width: int, count: int, seed: int = 1, **other: Any) -> Case:
    """Rows to slots in any order, a third of them holes, at positions in no order."""
    generator = torch.Generator().manual_seed(seed)
    page, pages = other.get("page", 32), other.get("pages", -(-count // other.get("page", 32)) + 3)
    slots = torch.randperm(page * pages, generator=generator)[:count]
    slots[torch.rand(count, generator=generator) < 0.3] = -1
    positions = torch.randint(0, KNOWN, (count,), generator=generator)
    weight = (1 + 0.2 * torch.randn(128, generator=generator)).bfloat16().cuda() if width == 68 else None
    return Case(
        random_rows(count, DIMS[width], seed), positions.cuda(), slots.cuda(), width,
        **({"page": page, "pages": pages, "weight": weight} | other),
    )  # fmt: skip


def in_turn(rows: torch.Tensor, width: int, **other: Any) -> Case:
    """Rows in slots 0, 1 ..., not rotated."""
    page = other.get("page", 128)
    positions = torch.zeros(len(rows), dtype=torch.int64, device="cuda")
    slots = torch.arange(len(rows), device="cuda")
    return Case(rows, positions, slots, width, **({"page": page, "pages": -(-len(rows) // page)} | other))


def bf16_of(patterns: torch.Tensor) -> torch.Tensor:
    return patterns.to(torch.int32).to(torch.int16).view(torch.bfloat16)


def keys_of(rows: torch.Tensor) -> Case:
    """Rows [n, 128] as keys, with weights of one."""
    return in_turn(rows, 68, weight=torch.ones(128, dtype=torch.bfloat16, device="cuda"), eps=0.0)


@pytest.mark.sanitizer
@every_page
@every_width
@pytest.mark.parametrize("count", [1, 2, 5, 33])
def test_few_rows(count: int, width: int, page: int) -> None:
    check(random_case(width, count, seed=count, page=page, dependent=count % 2 == 0))


@every_page
@every_width
@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("padding", [0, 16, 4096])
def test_many_rows(padding: int, ratio: int, width: int, page: int) -> None:
    check(random_case(width, 1500, seed=page, page=page, padding=padding, ratio=ratio))


@pytest.mark.parametrize("width", RECORDS)
def test_every_bfloat16_beside_its_like(width: int) -> None:
    """Groups of neighbouring numbers: those of one magnitude, also what is not finite, subnormal or zero."""
    check(in_turn(bf16_of(torch.arange(2**16, device="cuda")).view(-1, 512), width))


@pytest.mark.parametrize("width", RECORDS)
def test_every_bfloat16_beside_others(width: int) -> None:
    generator = torch.Generator(device="cuda").manual_seed(2)
    for _ in range(8):
        order = torch.randperm(2**16, device="cuda", generator=generator)
        every = bf16_of(order)
        check(in_turn(every.view(-1, 512), width))
        finite = torch.where(every.isfinite(), every, torch.zeros_like(every))
        check(in_turn(finite.view(-1, 512), width))


@pytest.mark.parametrize("width", RECORDS)
@pytest.mark.parametrize("group", [16, 32])
def test_every_largest_value_of_a_group(group: int, width: int) -> None:
    """A group has one magnitude with either sign, and what it makes of all mantissas two, four and six powers below."""
    magnitudes = torch.arange(0x7F80, device="cuda")
    below = torch.arange(group - 2, device="cuda") * 37 % 0x400
    rest = (magnitudes[:, None] - below).clamp(min=0)
    values = bf16_of(torch.cat([magnitudes[:, None], magnitudes[:, None] | 0x8000, rest], dim=1))
    rows = torch.zeros(-(-values.numel() // 512) * 512, dtype=torch.bfloat16, device="cuda")
    rows[: values.numel()] = values.flatten()
    check(in_turn(rows.view(-1, 512), width))


def ties(scales: np.ndarray) -> np.ndarray:
    """Where E2M1 is half way between two numbers, times each scale, and the bfloat16 next to it: [scales, 7, 3]."""
    middle = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
    at = (scales.astype(np.float32)[:, None] * middle).view(np.uint32)
    assert not (at & 0xFFFF).any(), "no bfloat16"
    around = at[:, :, None] + (np.array([-1, 0, 1]) * 0x10000).astype(np.int64)
    return around.astype(np.uint32).view(np.float32)


def test_fp4_ties_and_saturation_at_every_scale() -> None:
    scales = formats.decode_e4m3(np.arange(1, 0x7F, dtype=np.uint8))
    around = ties(scales).reshape(len(scales), 21)
    groups = np.zeros((len(scales), 2, 16), dtype=np.float32)
    groups[:, :, 0] = 6 * scales[:, None]
    groups[:, 0, 1:13], groups[:, 1, 1:10] = around[:, :12], -around[:, 12:]
    groups[:, 0, 13], groups[:, 0, 14], groups[:, 1, 12] = -0.0, 2.0**-133, -(2.0**-133)
    flat = torch.from_numpy(np.concatenate([groups.ravel(), np.zeros(-groups.size % 512, np.float32)])).bfloat16()
    check(in_turn(flat.view(-1, 512).cuda(), 288))
    check(in_turn(torch.full((3, 512), 3e38, dtype=torch.bfloat16, device="cuda"), 288))


def test_mxfp4_ties_and_saturation() -> None:
    """Keys whose mean square is so near to one that the norm leaves their numbers."""
    around = ties(np.array([0.25])).ravel()
    rows = np.zeros((2, 128), dtype=np.float32)
    for row, sign in zip(rows, (1, -1), strict=True):
        row[32:53], row[53:56] = sign * around, (1.5, -0.0, 2.0**-60)
        for i in range(4):
            left = np.sqrt(np.float32(128 - (row.astype(np.float64) ** 2).sum()))
            row[i] = (left.view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert np.array_equal(reference.normalize(rows, np.ones(128, np.float32), 0.0), rows)
    assert reference.KEY.encode(rows).scales[:, 1].tolist() == [125, 125]
    check(keys_of(torch.from_numpy(rows).bfloat16().cuda()))
    large = torch.zeros(2, 128, dtype=torch.bfloat16, device="cuda")
    large[0, 5], large[1, 7] = 3e38, 2.0**-100
    check(keys_of(large))


def test_every_bfloat16_in_a_key() -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    every = bf16_of(torch.arange(2**16, device="cuda"))
    check(keys_of(every.view(-1, 128)))
    for _ in range(8):
        order = torch.randperm(2**16, device="cuda", generator=generator)
        check(keys_of(every[order].view(-1, 128)))


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("power", [-130, -70, -20, 0, 20, 70])
def test_norm_of_keys(power: int, eps: float) -> None:
    case = random_case(68, 700, seed=power + 200, eps=eps)
    scaled = (torch.randn(700, 128, device="cuda").double() * 2.0**power).to(torch.bfloat16)
    scaled[3] = 0
    check(replace(case, rows=scaled))


@pytest.mark.sanitizer
@every_width
def test_what_is_not_finite_and_zeros(width: int) -> None:
    case = random_case(width, 40, seed=4)
    rows = case.rows.clone()
    inf, nan, last = float("inf"), float("nan"), rows.shape[1] - 1
    for row, (at, value) in enumerate([(0, nan), (5, inf), (37, -inf), (last, nan), (last, inf), (last - 40, -inf)]):
        rows[row, at] = value
    rows[7, 0], rows[7, 1] = inf, nan
    rows[8] = nan
    rows[9] = -inf
    rows[10], rows[11] = 0, -0.0
    check(replace(case, rows=rows, slots=torch.arange(40, device="cuda")))


@pytest.mark.sanitizer
@every_width
def test_what_is_not_stored(width: int) -> None:
    """Slots and positions that there are not, and rows that have no slot."""
    case = random_case(width, 24, seed=6, page=64, pages=2)
    places = 128
    slots = torch.arange(24, device="cuda") * 5
    slots[:8] = torch.tensor([-1, -2, -(2**63), places, places + 1, 2**32, 2**63 - 1, -places], device="cuda")
    positions = case.positions.clone()
    positions[8:14] = torch.tensor([-1, -(2**63), KNOWN, KNOWN + 1, 2**63 - 1, 2**40], device="cuda")
    check(replace(case, slots=slots, positions=positions))
    check(replace(case, slots=slots, positions=positions, ratio=2))
    check(replace(case, slots=torch.full_like(slots, -1)))
    check(replace(case, slots=slots[:15].contiguous()))
    check(replace(case, slots=slots[:0].contiguous()))


@every_width
def test_the_last_slot_and_the_last_position(width: int) -> None:
    case = random_case(width, 1, page=128, pages=3, padding=64)
    last = torch.tensor([3 * 128 - 1], device="cuda")
    check(replace(case, slots=last, positions=torch.tensor([KNOWN - 1], device="cuda")))
    check(replace(case, slots=last, positions=torch.tensor([KNOWN - 1], device="cuda"), ratio=2))


@every_width
def test_rows_further_apart(width: int) -> None:
    case = random_case(width, 50, seed=7)
    apart = torch.full((50, case.rows.shape[1] + 24), float("nan"), dtype=torch.bfloat16, device="cuda")
    apart[:, : case.rows.shape[1]] = case.rows
    check(replace(case, rows=apart[:, : case.rows.shape[1]]))


def turned(queries: torch.Tensor, positions: torch.Tensor, table: torch.Tensor) -> np.ndarray:
    """The oracle's queries."""
    at = numbers(positions[: len(queries)])
    result: np.ndarray = numbers(queries).copy()
    for token in np.flatnonzero((at >= 0) & (at < len(table))):
        angles = numbers(table)[at[token]][None, :].repeat(result.shape[1], axis=0)
        result[token] = reference.rotate(result[token], angles)
    return result


def check_queries(case: Case, queries: torch.Tensor, around: torch.Tensor) -> None:
    """Records and queries in one launch; `around` is what has the queries in its midst."""
    table, cache = cos_sin(), Cache(case)
    right, before = turned(queries, case.positions, table), around.clone()
    kv_record(
        case.rows, case.positions, table, case.slots, cache.view, queries=queries, dependent=case.dependent,
        compress_ratio=case.ratio,
    )  # fmt: skip
    assert np.array_equal(cache.memory(), expected(case, table))
    assert np.array_equal(numbers(queries), right, equal_nan=True)
    queries[:, :, -64:] = before.as_strided(queries.shape, queries.stride(), queries.storage_offset())[:, :, -64:]
    assert torch.equal(bits(around), bits(before)), "numbers that are not to be rotated were written"


@pytest.mark.sanitizer
@pytest.mark.parametrize("width", RECORDS)
@pytest.mark.parametrize(("tokens", "heads"), [(1, 16), (6, 16), (7, 5), (33, 1), (300, 8)])
def test_queries(tokens: int, heads: int, width: int) -> None:
    case = random_case(width, tokens, seed=30 + tokens, dependent=tokens == 6)
    case.positions[tokens // 2] = -1 if tokens > 1 else KNOWN - 1
    whole = random_rows((tokens + 2) * (heads + 1), 520, seed=31).view(tokens + 2, heads + 1, 520)
    check_queries(case, whole[1:-1, :heads, :512], whole)
    whole[0, 0, 470], whole[0, -1, 480], whole[0, 0, 519] = float("inf"), float("nan"), -float("inf")
    fewer = replace(case, slots=case.slots[: tokens // 2])
    check_queries(fewer, whole[:tokens, :heads, 8:], whole)
    check_queries(replace(case, slots=case.slots[:0]), whole[: tokens // 2, :heads, 8:], whole)


@every_width
def test_bytes_of_a_row_are_its_own(width: int) -> None:
    case = replace(random_case(width, 300, seed=8), slots=torch.randperm(320, device="cuda")[:300])
    table, whole = cos_sin(), Cache(case)
    case.write(whole.view, table)
    for first, last in ((0, 1), (7, 13), (100, 300)):
        part = Cache(case)
        replace(
            case, rows=case.rows[first:last], positions=case.positions[first:last], slots=case.slots[first:last]
        ).write(part.view, table)
        slots = case.slots[first:last]
        at = reference.RECORDS[width]
        ours, theirs = (reference.fetch(c.memory(), case.page, numbers(slots), at) for c in (part, whole))
        assert np.array_equal(ours.data, theirs.data) and np.array_equal(ours.scales, theirs.scales)


@every_width
def test_a_thousand_runs_have_the_same_bytes(width: int) -> None:
    case = random_case(width, 40, seed=9)
    table, cache = cos_sin(), Cache(case)
    case.write(cache.view, table)
    first = cache.view.clone()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for i in range(1000):
        cache.view.fill_(POISON)
        replace(case, dependent=i % 2 == 0).write(cache.view, table)
        different += (cache.view != first).sum()
    assert different.item() == 0


@every_width
def test_a_later_write_replaces_an_earlier_one(width: int) -> None:
    case, table = random_case(width, 64, seed=10), cos_sin()
    slots = torch.arange(64, device="cuda")
    first = replace(case, slots=slots)
    second = replace(case, slots=slots.flip(0), rows=random_rows(64, DIMS[width], 11))
    cache = Cache(case)
    first.write(cache.view, table)
    second.write(cache.view, table)
    assert np.array_equal(cache.memory(), expected(second, table))


@every_width
@every_page
def test_gather_of_any_bytes(page: int, width: int) -> None:
    """Every code with every scale, and slots that there are not."""
    record, generator = reference.RECORDS[width], np.random.default_rng(12)
    pages, padding = 2048 // page, 48
    memory = generator.integers(0, 256, (pages, page * width + padding), dtype=np.uint8)
    slots = generator.permutation(np.concatenate([np.arange(2048), [-1, 2048, 2**40, -(2**62)]]))
    on_gpu = torch.from_numpy(memory).cuda()
    view = on_gpu.as_strided((pages, page, width), (memory.shape[1], width, 1))
    found = kv_record_gather(view, torch.from_numpy(slots).cuda())
    right = reference.gather(memory, page, slots, record)
    assert np.array_equal(numbers(found), right, equal_nan=True)
    assert np.array_equal(np.signbit(numbers(found))[~np.isnan(right)], np.signbit(right)[~np.isnan(right)])
    assert kv_record_gather(view, torch.empty(0, dtype=torch.int64, device="cuda")).shape == (0, record.dims)


@pytest.mark.sanitizer
@every_width
def test_gather_of_what_was_written(width: int) -> None:
    case, table = random_case(width, 60, seed=13), cos_sin()
    cache = Cache(case)
    case.write(cache.view, table)
    live = case.slots >= 0
    rows = numbers(case.rows[live])
    if case.weight is not None:
        rows = reference.normalize(rows, numbers(case.weight), case.eps)
    rows = reference.rotate(rows, numbers(table)[numbers(case.positions[live])])
    found = numbers(kv_record_gather(cache.view, case.slots[live]))
    group = 32 if width != 288 else 16
    largest = np.abs(rows).reshape(len(rows), -1, group).max(axis=-1).repeat(group, axis=-1)
    # Half a step below the largest number of a group, whose scale may be almost twice what it need be, or in FP4 1/16
    # off; and subnormal codes of the least scale.
    step = {528: 1 / 16, 288: 1 / 6 + 1 / 16, 68: 1 / 3}[width]
    saturated = (width == 288) & (largest > 6 * 448)
    assert (saturated | (np.abs(found - rows) <= largest * step + 2.0**-9)).all()
    assert np.abs(found - rows).max() > 0


def test_a_cache_of_more_bytes_than_32_bits_have() -> None:
    page, width, padding = 128, 528, 512
    stride = page * width + padding
    pages = 2**32 // stride + 3
    memory = torch.zeros(pages * stride, dtype=torch.uint8, device="cuda")
    view = memory.as_strided((pages, page, width), (stride, width, 1))
    slots = torch.tensor([0, page * pages - 1, page * pages // 2, -1], device="cuda")
    rows, positions = random_rows(4, 512, 14), torch.zeros(4, dtype=torch.int64, device="cuda")
    kv_record(rows, positions, cos_sin(), slots, view)
    nonzero = int((memory != 0).sum())
    found = kv_record_gather(view, slots)
    small = Case(rows[:3], positions[:3], torch.tensor([0, 1, 2], device="cuda"), width)
    cache = Cache(small)
    small.write(cache.view, cos_sin())
    assert torch.equal(bits(found[:3]), bits(kv_record_gather(cache.view, small.slots)))
    assert not found[3].any() and nonzero <= 3 * width
    last = memory[(pages - 1) * stride :]
    assert last[(page - 1) * 512 : page * 512].any() and last[page * width - 16 : page * width].all()


@every_width
def test_result_of_the_kernel_ahead_is_seen(width: int) -> None:
    case, table = random_case(width, 30, seed=15), cos_sin()
    sources = [random_rows(30, DIMS[width], seed) for seed in range(16, 20)]
    right = [expected(replace(case, rows=source), table) for source in sources]
    rows = torch.zeros_like(sources[0])
    caches = [Cache(case) for _ in range(40)]
    ahead = replace(case, rows=rows, dependent=True)

    def step(i: int) -> None:
        torch.mul(sources[i % 4], 1, out=rows)
        ahead.write(caches[i].view, table)

    captured = graph(step, len(caches))
    for _ in range(20):
        for cache in caches:
            cache.view.fill_(POISON)
        captured.replay()
        torch.cuda.synchronize()
    for i, cache in enumerate(caches):
        assert np.array_equal(cache.memory(), right[i % 4]), f"launch {i}"


def test_the_stream_of_the_caller() -> None:
    case, table = random_case(528, 30, seed=21), cos_sin()
    cache = Cache(case)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        replace(case, rows=case.rows * 1).write(cache.view, table)
    side.synchronize()
    assert np.array_equal(cache.memory(), expected(case, table))


@pytest.mark.parametrize("name", ["positions", "cos_sin", "slots", "cache"])
def test_another_device(name: str) -> None:
    case = random_case(528, 3, seed=22)
    arguments = {
        "rows": case.rows, "positions": case.positions, "cos_sin": cos_sin(), "slots": case.slots,
        "cache": Cache(case).view,
    }  # fmt: skip
    arguments[name] = arguments[name].cpu()
    with pytest.raises(RuntimeError, match=f"kv_record: {name}: is not on a CUDA device"):
        kv_record(**arguments)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_second_gpu() -> None:
    case, table = random_case(288, 20, seed=23), cos_sin()
    there = torch.full((case.pages, case.page, 288), POISON, dtype=torch.uint8, device="cuda:1")
    rows, positions, known, slots = (t.to("cuda:1") for t in (case.rows, case.positions, table, case.slots))
    kv_record(rows, positions, known, slots, there)
    assert torch.cuda.current_device() == 0
    assert np.array_equal(there.cpu().numpy().reshape(case.pages, -1), expected(case, table))
    with pytest.raises(RuntimeError, match="kv_record: slots: is on cuda:0; expected cuda:1, where rows is"):
        kv_record(rows, positions, known, case.slots, there)
