"""paged_mqa_logits and its schedule against the oracle, on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.common import formats
from kernels.paged_mqa_logits import reference
from kernels.paged_mqa_logits.op import (
    HEADS,
    MOST_NEXT_N,
    PAGE_SIZES,
    paged_mqa_logits,
    paged_mqa_logits_metadata,
)
from kernels.testing.gpu import bits, graph, poisoned

FORMATS = ("fp8", "mxfp4")
NAN_CODE = 0x7F
# Garbage behind the context, some of it a page that exists.
GARBAGE = (-1, 2**31 - 1, 0, -(2**31))

both_formats = pytest.mark.parametrize("kind", FORMATS)
every_page = pytest.mark.parametrize("page", PAGE_SIZES)


@dataclass(frozen=True)
class Request:
    """Bytes of q [rows, 32, .] and its scales [rows, 32, 4], weights [rows, 32], contexts [rows]; bytes of the keys."""

    q: np.ndarray
    q_scales: np.ndarray
    weights: np.ndarray
    contexts: np.ndarray
    keys: np.ndarray
    key_scales: np.ndarray

    @property
    def queries(self) -> np.ndarray:
        return formats.decode_e4m3(self.q) if self.fp8 else reference.mxfp4_values(self.q, self.q_scales)

    @property
    def fp8(self) -> bool:
        return bool(self.q.shape[-1] == reference.HEAD_DIM)

    def rows(self, *which: int) -> "Request":
        """The same keys, and some of the rows."""
        at = list(which)
        return Request(self.q[at], self.q_scales[at], self.weights[at], self.contexts[at], self.keys, self.key_scales)


def codes(generator: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Bytes of normal values."""
    if kind == "fp8":
        return formats.encode_e4m3(generator.standard_normal((*shape, 128)) * 8)
    return formats.encode_e2m1(generator.standard_normal((*shape, 128)) * 2)


def as_bytes(scales: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(scales, dtype=np.float32).view(np.uint8).reshape(*scales.shape, 4)


def request(kind: str, context: int, rows: int, seed: int) -> Request:
    """Random; row j sees what a draft's row sees: context - rows + 1 + j keys."""
    generator = np.random.default_rng(seed)
    if kind == "fp8":
        key_scales = as_bytes(np.exp2(generator.uniform(-6, 3, context)))
    else:
        key_scales = generator.integers(118, 132, (context, 4), dtype=np.uint8)
    return Request(
        codes(generator, kind, rows, HEADS),
        generator.integers(118, 132, (rows, HEADS, 4), dtype=np.uint8),
        generator.standard_normal((rows, HEADS)).astype(np.float32),
        np.maximum(context - rows + 1 + np.arange(rows), 0).astype(np.int32),
        codes(generator, kind, context),
        key_scales,
    )


@dataclass(frozen=True)
class Batch:
    """Requests on the GPU, with pages in a random order among pages of NaN, and NaN behind the last key."""

    requests: Sequence[Request]
    q: torch.Tensor
    q_scale: torch.Tensor | None
    cache: torch.Tensor
    weights: torch.Tensor
    contexts: torch.Tensor
    tables: torch.Tensor

    def schedule(self, slots: int = 132) -> torch.Tensor:
        return paged_mqa_logits_metadata(self.contexts, self.cache.shape[1], slots)

    def run(self, out: torch.Tensor, schedule: torch.Tensor | None = None, dependent: bool = False) -> torch.Tensor:
        if schedule is None:
            schedule = self.schedule()
            torch.cuda.synchronize()  # a dependent launch may not read what the kernel ahead of it writes
        return paged_mqa_logits(
            self.q,
            self.q_scale,
            self.cache,
            self.weights,
            self.contexts,
            self.tables,
            schedule,
            out.shape[1],
            out=out,
            dependent=dependent,
        )


def on_gpu(requests: Sequence[Request], page: int, padding: int = 0, one_context: bool = False) -> Batch:
    """Lays requests out in pages that are `padding` bytes further apart than they are long."""
    generator = np.random.default_rng(len(requests) + page)
    paged = [reference.write_pages(r.keys, r.key_scales, page, filler=0xFF) for r in requests]
    counts = [len(pages) for pages in paged]
    width = max(1, *counts) + 3
    order = generator.permutation(sum(counts) + 5)
    page_bytes = page * (requests[0].keys.shape[1] + 4)
    memory = np.full((len(order), page_bytes + padding), 0xFF, dtype=np.uint8)
    tables = generator.choice(np.array(GARBAGE, dtype=np.int32), (len(requests), width))
    at = 0
    for i, pages in enumerate(paged):
        mine = order[at : at + len(pages)]
        memory[mine, :page_bytes] = pages
        tables[i, : len(pages)] = mine
        at += len(pages)
    whole = torch.from_numpy(memory).cuda()
    key_bytes = page_bytes // page
    cache = whole.as_strided((len(order), page, 1, key_bytes), (page_bytes + padding, key_bytes, key_bytes, 1))
    table = torch.full((len(requests), width + 5), -1, dtype=torch.int32, device="cuda")[:, :width]
    table.copy_(torch.from_numpy(tables))
    stacked = {
        name: torch.from_numpy(np.stack([getattr(r, name) for r in requests])).cuda()
        for name in ("q", "q_scales", "weights", "contexts")
    }
    fp8 = requests[0].fp8
    return Batch(
        requests,
        stacked["q"].view(torch.float8_e4m3fn) if fp8 else stacked["q"],
        None if fp8 else stacked["q_scales"].view(torch.int32).squeeze(-1),
        cache,
        stacked["weights"].view(-1, HEADS),
        stacked["contexts"][:, -1].contiguous() if one_context else stacked["contexts"],
        table,
    )


def checked(
    batch: Batch, columns: int = 0, schedule: torch.Tensor | None = None, dependent: bool = False
) -> torch.Tensor:
    """Runs on poisoned memory; fails when anything is written but a row's own columns. Returns the bits."""
    rows = [(r, j) for r in batch.requests for j in range(len(r.contexts))]
    columns = columns or max(64, *(int(r.contexts.max()) + 9 for r in batch.requests))
    out, untouched = poisoned(len(rows), columns, torch.float32)
    before = bits(out).clone()
    batch.run(out, schedule, dependent)
    assert untouched(), "wrote outside of out"
    last = torch.tensor([r.contexts[j] for r, j in rows], device="cuda")
    unseen = torch.arange(columns, device="cuda")[None] >= last[:, None]
    assert torch.equal(bits(out)[unseen], before[unseen]), "wrote behind a row's context"
    return bits(out)


def excess(batch: Batch, result: torch.Tensor) -> float:
    """The largest error over its bound."""
    values, worst, row = result.view(torch.float32).double().cpu().numpy(), 0.0, 0
    for r in batch.requests:
        keys = reference.decode_keys(r.keys, r.key_scales)
        exact, bound = (f(r.queries, r.weights.astype(float), keys) for f in (reference.logits, reference.bound))
        for j, context in enumerate(np.clip(r.contexts, 0, result.shape[1])):
            error = np.abs(values[row, :context] - exact[j, :context])
            assert not np.isnan(error).any(), "a logit is missing, or not a number"
            worst = max(worst, float(np.max(error / bound[j, :context], initial=0.0)))
            row += 1
    return worst


def ragged(kind: str, page: int, rows: int) -> list[Request]:
    """Contexts at and around the edges of units and pages."""
    lengths = (0, 1, page - 1, page, page + 1, 31, 33, 2 * page + 17, 517)
    return [request(kind, length, rows, 100 * rows + i) for i, length in enumerate(lengths)]


@both_formats
@pytest.mark.parametrize("page", [32, pytest.param(64, marks=pytest.mark.sanitizer), 128])
def test_against_the_oracle(page: int, kind: str) -> None:
    for rows in range(1, MOST_NEXT_N + 1):
        batch = on_gpu(ragged(kind, page, rows), page, padding=0 if rows % 3 else 48)
        assert excess(batch, checked(batch, dependent=rows % 2 == 0)) <= 1, f"next_n={rows}"


@both_formats
@pytest.mark.parametrize("rows", [1, 2, 6])
def test_one_context_for_all_rows_of_a_request(rows: int, kind: str) -> None:
    requests = [request(kind, length, rows, length) for length in (70, 300, 5)]
    for r in requests:
        r.contexts[:] = len(r.keys)
    batch = on_gpu(requests, 64, one_context=True)
    result = checked(batch)
    assert excess(batch, result) <= 1
    assert torch.equal(checked(replace(batch, contexts=batch.contexts.unsqueeze(1))), result)


@both_formats
def test_rows_that_see_less_than_the_last_and_more(kind: str) -> None:
    requests = [request(kind, 200, 5, seed) for seed in range(3)]
    requests[0].contexts[:] = (200, 3, 0, 64, 128)
    requests[1].contexts[:] = (0, 0, -7, 0, 0)
    requests[2].contexts[:] = (-(2**31), 33, 32, 31, 1)
    batch = on_gpu(requests, 32)
    assert excess(batch, checked(batch)) <= 1


@both_formats
@every_page
def test_long_contexts(page: int, kind: str) -> None:
    batch = on_gpu([request(kind, length, 2, length) for length in (30_011, 7, 9_000)], page)
    assert excess(batch, checked(batch)) <= 1


@both_formats
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_page_size_does_not_change_bits(rows: int, kind: str) -> None:
    requests = [request(kind, length, rows, 50 + length) for length in (127, 128, 129, 64, 1000, 1, 4097)]
    by_page = [checked(on_gpu(requests, page, padding)) for page in PAGE_SIZES for padding in (0, 16, 4096)]
    assert all(torch.equal(each, by_page[0]) for each in by_page)


@both_formats
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_bits_of_a_row_are_its_own(rows: int, kind: str) -> None:
    requests = [request(kind, length, rows, 70 + length) for length in (600, 40, 2048, 1, 333)]
    columns = 2100
    whole = checked(on_gpu(requests, 64), columns).view(len(requests), rows, columns)
    for i, each in enumerate(requests):
        alone = checked(on_gpu([each], 64), columns)
        assert torch.equal(alone, whole[i]), f"request {i} alone"
        for j in range(rows):
            assert torch.equal(checked(on_gpu([each.rows(j)], 64), columns)[0], whole[i, j]), f"row {j} of {i} alone"
    flat = on_gpu([each.rows(j) for each in requests for j in range(rows)], 64)
    assert torch.equal(checked(flat, columns).view_as(whole), whole)
    backwards = on_gpu([each.rows(*reversed(range(rows))) for each in reversed(requests)], 64)
    assert torch.equal(checked(backwards, columns).view_as(whole).flip(0, 1), whole)


@both_formats
def test_schedule_does_not_change_bits(kind: str) -> None:
    batch = on_gpu([request(kind, length, 3, 80 + length) for length in (600, 0, 2048, 0, 0, 333, 0)], 64)
    expected = checked(batch)
    for slots in (1, 2, 7, 131, 500):
        assert torch.equal(checked(batch, schedule=batch.schedule(slots)), expected), f"{slots} slots"
    longer, none = torch.full_like(batch.contexts, 5000), torch.zeros_like(batch.contexts)
    for other in (longer, none, batch.contexts.flip(0).contiguous()):
        stale = paged_mqa_logits_metadata(other, 64, 20)
        assert torch.equal(checked(batch, schedule=stale), expected)


@both_formats
def test_more_requests_than_threads(kind: str) -> None:
    none, one = request(kind, 0, 1, 1), request(kind, 40, 1, 2)
    batch = on_gpu([none] * 1300 + [one] + [none] * 700 + [one, one] + [none] * 900, 32)
    for slots in (1, 2, 132):
        assert excess(batch, checked(batch, schedule=batch.schedule(slots))) <= 1


@both_formats
def test_width_of_the_result_and_of_the_tables_end_a_context(kind: str) -> None:
    long = request(kind, 300, 2, 3)
    whole = checked(on_gpu([long], 64), 320)
    narrow = on_gpu([long], 64)
    for columns in (1, 31, 32, 64, 190):
        out, untouched = poisoned(2, columns, torch.float32)
        narrow.run(out)
        assert untouched()
        assert torch.equal(bits(out), whole[:, :columns])
    out, _ = poisoned(2, 320, torch.float32)
    before = bits(out).clone()
    replace(narrow, tables=narrow.tables[:, :2]).run(out)
    assert torch.equal(bits(out)[:, :128], whole[:, :128])
    assert torch.equal(bits(out)[:, 128:], before[:, 128:])


@both_formats
def test_a_page_that_is_not_there_counts_as_zeros(kind: str) -> None:
    batch = on_gpu([request(kind, 192, 2, 4)], 64)
    expected = checked(batch)
    for wrong in (-1, batch.cache.shape[0], 2**31 - 1, -(2**31)):
        batch.tables[0, 1] = wrong
        result = checked(batch).view(torch.float32)
        assert (result[:, 64:128] == 0).all()
        assert torch.equal(bits(result)[:, :64], expected[:, :64])
        assert torch.equal(bits(result)[:, 128:], expected[:, 128:])


@both_formats
def test_exact(kind: str) -> None:
    """Small integers, and scales whose products are 1: every product and sum is exact."""
    generator = np.random.default_rng(6)
    values = generator.integers(-2, 3, (4 * HEADS + 500, 128)).astype(float)
    encoded = formats.encode_e4m3(values) if kind == "fp8" else formats.encode_e2m1(values)
    scales = as_bytes(np.exp2(generator.integers(-60, 60, 500)))
    q_scales = np.zeros((4, HEADS, 4), dtype=np.uint8)
    if kind == "mxfp4":
        q_scales[:], scales = (1, 253, 127, 60), np.tile(np.array([253, 1, 127, 194], dtype=np.uint8), (500, 1))
    weights = generator.integers(-3, 4, (4, HEADS)).astype(np.float32)
    contexts = np.full(4, 500, dtype=np.int32)
    q = encoded[: 4 * HEADS].reshape(4, HEADS, -1)
    exact = Request(q, q_scales, weights, contexts, encoded[4 * HEADS :], scales)
    result = checked(on_gpu([exact], 128)).view(torch.float32)[:, :500].double().cpu().numpy()
    keys = reference.decode_keys(exact.keys, exact.key_scales)
    assert np.array_equal(result, reference.logits(exact.queries, weights.astype(float), keys))


@both_formats
def test_every_byte(kind: str) -> None:
    generator = np.random.default_rng(7)

    def finite(*shape: int) -> np.ndarray:
        some = generator.integers(0, 256, (*shape, 128 if kind == "fp8" else 64), dtype=np.uint8)
        if kind == "fp8":
            some[(some & 0x7F) == NAN_CODE] = 0x3C
        return some

    scales = as_bytes(np.exp2(generator.uniform(-90, 60, 999)))
    if kind == "mxfp4":
        scales = generator.integers(80, 165, (999, 4), dtype=np.uint8)
    q_scales = generator.integers(80, 165, (8, HEADS, 4), dtype=np.uint8)
    weights = generator.standard_normal((8, HEADS)) * np.exp2(generator.uniform(-20, 20, (8, HEADS)))
    contexts = np.full(8, 999, dtype=np.int32)
    every = Request(finite(8, HEADS), q_scales, weights.astype(np.float32), contexts, finite(999), scales)
    batch = on_gpu([every], 64)
    assert excess(batch, checked(batch)) <= 1


@pytest.mark.parametrize(
    ("q", "key", "scale", "weight"),
    [
        (0x7E, 0x7E, 2.0**90, 1.0),
        (0x7E, 0xFE, 1.0, 1.0),
        (0x01, 0x01, 2.0**-126, 1.0),
        (0x01, 0x81, 2.0**-149, -1.0),
        (0x00, 0x80, 1.0, 3.0),
        (0x7E, 0x01, 2.0**-140, 2.0**100),
        (0x08, 0x38, -1.0, 2.0**-140),
    ],
)
def test_extreme_values_of_fp8(q: int, key: int, scale: float, weight: float) -> None:
    r = request("fp8", 70, 2, 8)
    r.q[:], r.keys[:], r.weights[:] = q, key, weight
    r.key_scales[:] = as_bytes(np.full(70, scale))
    batch = on_gpu([r], 64)
    assert excess(batch, checked(batch)) <= 1


@pytest.mark.parametrize(
    ("q", "key", "q_scale", "scale"),
    [(0x77, 0x77, 2, 252), (0x77, 0x77, 170, 180), (0x11, 0x11, 0, 127), (0x11, 0x99, 10, 10), (0x00, 0x88, 127, 127)],
)
def test_extreme_values_of_mxfp4(q: int, key: int, q_scale: int, scale: int) -> None:
    r = request("mxfp4", 70, 2, 9)
    r.q[:], r.keys[:], r.q_scales[:], r.key_scales[:] = q, key, q_scale, scale
    batch = on_gpu([r], 64)
    assert excess(batch, checked(batch)) <= 1


def test_not_a_number_in_fp8() -> None:
    """max(x, 0) makes 0 of a product that is no number; what comes after it does not."""
    r = request("fp8", 100, 3, 10)
    r.contexts[:] = 100
    for i, scale in ((20, np.nan), (21, np.inf), (22, -np.inf)):
        r.key_scales[i] = as_bytes(np.array([scale]))[0]
    r.keys[40, 127] = NAN_CODE
    r.q[1, 5, 0] = 0xFF
    r.weights[2, 31] = np.nan
    result = checked(on_gpu([r], 64)).view(torch.float32)[:, :100].double().cpu().numpy()
    plain = reference.logits(r.queries, r.weights.astype(float), reference.decode_keys(r.keys, r.key_scales))
    assert np.isnan(result[:2, 20]).all()
    assert np.array_equal(result[:2, 21:23], plain[:2, 21:23])
    assert np.isinf(plain[:2, 21:23]).all()
    assert (result[:2, 40] == 0).all()
    assert np.isnan(result[2]).all()
    others = [i for i in range(100) if i not in (20, 21, 22, 40)]
    assert np.allclose(result[:2, others], plain[:2, others], atol=1e-5 * np.abs(plain[:2, others]).max())


def test_not_a_number_in_scales_of_mxfp4() -> None:
    r = request("mxfp4", 100, 2, 11)
    r.contexts[:] = 100
    r.key_scales[30, 2] = 255
    r.q_scales[1, 7, 3] = 255
    result = checked(on_gpu([r], 64)).view(torch.float32)[:, :100].double().cpu().numpy()
    plain = reference.logits(r.queries, r.weights.astype(float), reference.decode_keys(r.keys, r.key_scales))
    assert (result[:, 30] == 0).all()
    assert np.allclose(result, plain, atol=1e-5 * np.abs(plain).max())


@both_formats
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("dependent", [False, True])
def test_a_thousand_runs_have_the_same_bits(dependent: bool, rows: int, kind: str) -> None:
    batch = on_gpu([request(kind, length, rows, 12) for length in (3000, 0, 77, 1024)], 64)
    schedule = batch.schedule()
    out = torch.full((4 * rows, 3000), float("nan"), device="cuda")
    torch.cuda.synchronize()
    first = bits(batch.run(out, schedule)).clone()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        out.fill_(float("nan"))
        batch.run(out, schedule, dependent)
        different += (bits(out) != first).sum()
    assert different.item() == 0


@both_formats
def test_result_of_the_kernel_ahead_is_seen(kind: str) -> None:
    sources = [on_gpu([request(kind, 900, 3, seed), request(kind, 900, 3, seed + 9)], 64) for seed in range(4)]
    assert all(torch.equal(source.tables, sources[0].tables) for source in sources)
    schedule = sources[0].schedule()
    outs = [torch.empty(6, 900, device="cuda") for _ in range(100)]
    expected = [bits(source.run(torch.full_like(outs[0], float("nan")), schedule)) for source in sources]
    target = on_gpu(sources[0].requests, 64)
    torch.cuda.synchronize()

    def step(i: int) -> None:
        source = sources[i % 4]
        bits(target.q).copy_(bits(source.q))
        if target.q_scale is not None and source.q_scale is not None:
            target.q_scale.copy_(source.q_scale)
        target.weights.copy_(source.weights)
        target.cache.copy_(source.cache)
        target.run(outs[i], schedule, dependent=True)

    captured = graph(step, len(outs))
    for _ in range(10):
        for out in outs:
            out.fill_(float("nan"))
        captured.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(bits(out), expected[i % 4]) for i, out in enumerate(outs))


@both_formats
def test_a_graph_follows_the_contexts(kind: str) -> None:
    """Schedule and logits in one graph, replayed for other lengths."""
    full = [request(kind, 700, 2, 20 + i) for i in range(3)]
    for r in full:
        r.contexts[:] = 700
    batch = on_gpu(full, 128)
    schedule = batch.schedule()
    out = torch.empty(6, 700, device="cuda")

    def step(_: int) -> None:
        paged_mqa_logits_metadata(batch.contexts, 128, 132, out=schedule, dependent=True)
        batch.run(out, schedule)

    whole = bits(batch.run(torch.full_like(out, float("nan")))).view(3, 2, 700)
    captured = graph(step, 1)
    for lengths in ((699, 700), (0, 1), (40, 20), (128, 129)):
        contexts = np.array([lengths, (0, 0), lengths[::-1]], dtype=np.int32)
        batch.contexts.copy_(torch.from_numpy(contexts))
        out.fill_(float("nan"))
        captured.replay()
        seen = torch.arange(700, device="cuda") < batch.contexts[:, :, None]
        result = bits(out).view(3, 2, 700)
        assert torch.equal(torch.where(seen, result, 0), torch.where(seen, whole, 0))
        assert out.view(3, 2, 700)[~seen].isnan().all()
        assert np.array_equal(schedule.cpu().numpy(), reference.schedule(contexts, 132))


@pytest.mark.parametrize("slots", [1, 3, 132, 188, 2000])
@pytest.mark.parametrize("requests", [1, 2, pytest.param(37, marks=pytest.mark.sanitizer), 1023, 1025, 5000])
def test_schedule(requests: int, slots: int) -> None:
    generator = np.random.default_rng(requests + slots)
    for rows, longest in ((1, 40), (4, 9000), (8, 1)):
        contexts = generator.integers(-3, longest, (requests, rows)).astype(np.int32)
        contexts[generator.random(requests) < 0.3] = 0
        ours = paged_mqa_logits_metadata(torch.from_numpy(contexts).cuda(), 64, slots)
        assert np.array_equal(ours.cpu().numpy(), reference.schedule(contexts, slots))
    zeros = torch.zeros(requests, dtype=torch.int32, device="cuda")
    nothing = paged_mqa_logits_metadata(zeros, 32, slots)
    assert np.array_equal(nothing.cpu().numpy(), reference.schedule(np.zeros((requests, 1), np.int32), slots))


def test_schedule_of_very_long_contexts() -> None:
    contexts = np.full((5000, 1), 2**31 - 1, dtype=np.int32)
    places = paged_mqa_logits_metadata(torch.from_numpy(contexts).cuda(), 64, 7).cpu().numpy().astype(np.int64)
    units = 2**31 // 32
    assert (places[:, 0] * units + places[:, 1]).tolist() == [slot * 5000 * units // 7 for slot in range(8)]


def arguments(kind: str = "fp8") -> dict[str, Any]:
    batch = on_gpu([request(kind, 70, 2, 30)], 64)
    return {
        "q": batch.q,
        "q_scale": batch.q_scale,
        "kv_cache": batch.cache,
        "weights": batch.weights,
        "context_lens": batch.contexts,
        "block_tables": batch.tables,
        "schedule_metadata": batch.schedule(),
        "max_model_len": 128,
        "out": torch.zeros(2, 128, device="cuda"),
    }


@pytest.mark.parametrize(
    "name", ["q_scale", "kv_cache", "weights", "context_lens", "block_tables", "schedule_metadata", "out"]
)
def test_another_device(name: str) -> None:
    wrong = arguments("mxfp4")
    wrong[name] = wrong[name].cpu()
    with pytest.raises(RuntimeError, match=f"paged_mqa_logits: {name}: is not on a CUDA device"):
        torch.ops.moet.paged_mqa_logits(*wrong.values())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_a_second_gpu() -> None:
    here = arguments()
    there = {name: v.to("cuda:1") if isinstance(v, torch.Tensor) else v for name, v in here.items()}
    for each in (here, there):
        torch.ops.moet.paged_mqa_logits(*each.values())
    assert torch.cuda.current_device() == 0
    assert torch.equal(bits(here["out"].cpu()), bits(there["out"].cpu()))
    with pytest.raises(RuntimeError, match="paged_mqa_logits: weights: is on cuda:1; expected cuda:0, where q is"):
        torch.ops.moet.paged_mqa_logits(*(here | {"weights": there["weights"]}).values())


def test_a_result_made_here_begins_its_rows_at_multiples_of_256_bytes() -> None:
    made = arguments()
    expected = made.pop("out")
    torch.ops.moet.paged_mqa_logits(*made.values(), expected)
    out = paged_mqa_logits(*made.values())
    assert (tuple(out.shape), out.stride()) == ((2, 128), (128, 1))
    assert paged_mqa_logits(*(made | {"max_model_len": 129}).values()).stride() == (192, 1)
    assert torch.equal(bits(out)[:, :69], bits(expected)[:, :69])


@both_formats
def test_torch_agrees_with_the_registration(kind: str) -> None:
    # Its test of the schema multiplies the arguments, which torch cannot for FP8.
    tests = ("test_autograd_registration", "test_faketensor")
    every = arguments(kind)
    torch.library.opcheck(torch.ops.moet.paged_mqa_logits.default, tuple(every.values()), test_utils=tests)
    contexts, schedule = every["context_lens"], every["schedule_metadata"]
    torch.library.opcheck(torch.ops.moet.paged_mqa_logits_metadata.default, (contexts, 64, schedule), test_utils=tests)
