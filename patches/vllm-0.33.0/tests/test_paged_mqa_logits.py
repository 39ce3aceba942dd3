"""Step paged-mqa-logits: which pages of index keys reach our kernel on sm_120, and with what."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import vllm.third_party.deep_gemm
from vllm.config import CUDAGraphMode, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers import sparse_attn_indexer
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.mla import indexer
from vllm.v1.kv_cache_interface import MLAAttentionSpec

PAGE, HEADS, HEAD_DIM = 128, 32, 128
SM_COUNT = 188
TOP_K = 16
# Bytes of a key by format, and of a page's value plane by key.
KEY_BYTES = {"fp8": (132, 128), "mxfp4": (68, 64)}
# One key, a page less one, a page, one more, and several pages with a part of one.
SEQ_LENS = [9, 127, 128, 129, 300]

Configure = Callable[..., VllmConfig]
Device = Callable[[int, int], None]
Load = Callable[[str | None], Any]
Recorded = list[tuple[Any, ...]]


@pytest.fixture
def deep_gemm(fresh: Callable[..., ModuleType]) -> Load:
    """vLLM's wrapper of DeepGEMM, imported under a value of the switch."""

    def load(switch: str | None) -> Any:
        return fresh("vllm.utils.deep_gemm", VLLM_MOET_PAGED_MQA_LOGITS=switch)

    return load


@dataclass
class Kernel:
    """In place of the family's operators: numpy's oracle on exactly what it is handed.

    Before that, the real ones are to find nothing wrong with it but that it is not on a GPU, which they look at last.
    """

    operators: Any

    schedules: list[tuple[torch.Tensor, int, int]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def paged_mqa_logits_metadata(self, context_lens: torch.Tensor, block_size: int, num_slots: int) -> torch.Tensor:
        """A schedule that nobody else would make."""
        with pytest.raises(RuntimeError, match=r": context_lens: is not on a CUDA device; expected one$"):
            self.operators.paged_mqa_logits_metadata(context_lens, block_size, num_slots)
        self.schedules.append((context_lens.clone(), block_size, num_slots))
        return torch.arange(2 * num_slots + 2, dtype=torch.int32).view(-1, 2) + 7 * len(self.schedules)

    def paged_mqa_logits(
        self,
        q: torch.Tensor,
        q_scale: torch.Tensor | None,
        kv_cache: torch.Tensor,
        weights: torch.Tensor,
        context_lens: torch.Tensor,
        block_tables: torch.Tensor,
        schedule_metadata: torch.Tensor,
        max_model_len: int,
        *,
        dependent: bool = False,
    ) -> torch.Tensor:
        """The oracle's scores; what no row sees is NaN."""
        with pytest.raises(RuntimeError, match=r": q: is not on a CUDA device; expected one$"):
            self.operators.paged_mqa_logits(
                q, q_scale, kv_cache, weights, context_lens, block_tables, schedule_metadata, max_model_len
            )
        lens, page, slots = self.schedules[-1]
        assert torch.equal(lens, context_lens)
        assert page == kv_cache.shape[1]
        assert schedule_metadata.shape == (slots + 1, 2)
        assert schedule_metadata[0, 0] == 7 * len(self.schedules)
        self.calls.append({"q": q, "schedule": schedule_metadata, "dependent": dependent})
        requests, next_n = q.shape[:2]
        out = torch.full((requests * next_n, max_model_len), torch.nan)
        for request in range(requests):
            rows = slice(request * next_n, (request + 1) * next_n)
            scale = None if q_scale is None else q_scale[request].numpy()
            scores = _oracle(
                q[request], scale, kv_cache, weights[rows], block_tables[request], int(lens[request].max())
            )
            for row, length in enumerate(lens[request].tolist()):
                out[rows][row, :length] = scores[row, :length]
        return out


def _oracle(
    q: torch.Tensor, scale: Any, cache: torch.Tensor, weights: torch.Tensor, table: torch.Tensor, length: int
) -> torch.Tensor:
    """The family's reference on one request's rows: the scores of its first `length` keys."""
    from moet_kernels.common import formats
    from moet_kernels.paged_mqa_logits import reference

    if scale is None:
        numbers = formats.decode_e4m3(q.view(torch.uint8).numpy())
    else:
        numbers = reference.mxfp4_values(q.view(torch.uint8).numpy(), np.ascontiguousarray(scale)[..., None].view("u1"))
    count = -(-length // cache.shape[1])
    pages = [reference.read_page(cache[page].numpy().reshape(-1), cache.shape[1]) for page in table[:count].tolist()]
    rows, scales = (np.concatenate(planes)[:length] for planes in zip(*pages, strict=True))
    keys = reference.decode_keys(rows, scales)
    return torch.from_numpy(reference.logits(numbers, weights.numpy(), keys).astype(np.float32))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The fake kernel, where the dispatch looks for the real one."""
    from moet_kernels.paged_mqa_logits import op

    fake = Kernel(SimpleNamespace(**{name: getattr(op, name) for name in op.__dict__ if name.startswith("paged_")}))
    monkeypatch.setattr(op, "paged_mqa_logits_metadata", fake.paged_mqa_logits_metadata)
    monkeypatch.setattr(op, "paged_mqa_logits", fake.paged_mqa_logits)
    return fake


def _record(module: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Recorded, Recorded]:
    """DeepGEMM's two operators, replaced by what notes their arguments: (schedules, logits)."""
    schedules: Recorded = []
    scored: Recorded = []
    monkeypatch.setattr(module, "_get_paged_mqa_logits_metadata_impl", lambda *args: schedules.append(args))
    monkeypatch.setattr(module, "_fp8_fp4_paged_mqa_logits_impl", lambda *args: scored.append(args))
    return schedules, scored


def _arguments(page: int, form: str, next_n: int) -> tuple[Any, ...]:
    """What fp8_fp4_paged_mqa_logits is called with for two requests, all zero."""
    key_bytes, values = KEY_BYTES[form]
    q = torch.zeros(2, next_n, HEADS, values, dtype=torch.int8)
    scales = torch.zeros(2, next_n, HEADS, dtype=torch.int32) if form == "mxfp4" else None
    return (
        (q if scales is not None else q.view(torch.float8_e4m3fn), scales),
        torch.zeros(4, page, 1, key_bytes, dtype=torch.uint8),
        torch.zeros(2 * next_n, HEADS),
        torch.ones(2, next_n, dtype=torch.int32),
        torch.zeros(2, 2, dtype=torch.int32),
    )


@pytest.mark.parametrize("form", KEY_BYTES)
@pytest.mark.parametrize("next_n", [1, 2, 6, 8])
@pytest.mark.parametrize("page", [32, 64, 128])
@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 0), (12, 1)])
def test_only_pages_of_128_keys_on_sm120_are_ours(
    deep_gemm: Load,
    kernel: Kernel,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    page: int,
    next_n: int,
    form: str,
) -> None:
    module = deep_gemm(None)
    device(*capability)
    schedules, scored = _record(module, monkeypatch)
    q, cache, weights, lens, tables = _arguments(page, form, next_n)
    schedule = module.get_paged_mqa_logits_metadata(lens, page, SM_COUNT)
    if capability == (12, 0) and page == PAGE:
        module.fp8_fp4_paged_mqa_logits(q, cache, weights, lens, tables, schedule, max_model_len=256)
        assert (len(kernel.schedules), len(kernel.calls)) == (1, 1)
        assert not schedules
        assert not scored
    else:
        module.fp8_fp4_paged_mqa_logits(q, cache, weights, lens, tables, schedule, max_model_len=256)
        assert not kernel.schedules
        assert not kernel.calls
        assert (len(schedules), len(scored)) == (1, 1)


@pytest.mark.parametrize("page", [64, 128])
@pytest.mark.parametrize("switch", ["0", "1"])
def test_what_is_not_ours_reaches_deepgemm_as_it_came(
    deep_gemm: Load, device: Device, monkeypatch: pytest.MonkeyPatch, switch: str, page: int
) -> None:
    module = deep_gemm(switch)
    if switch == "1":
        device(10, 0)
    schedules, scored = _record(module, monkeypatch)
    q, cache, weights, lens, tables = _arguments(page, "fp8", 2)
    schedule = torch.zeros(SM_COUNT + 1, 2, dtype=torch.int32)
    module.get_paged_mqa_logits_metadata(lens, page, SM_COUNT)
    module.fp8_fp4_paged_mqa_logits(q, cache, weights, lens, tables, schedule, max_model_len=256)
    assert schedules == [(lens, page, SM_COUNT)]
    (handed,) = scored
    for got, given in zip(handed, (q, cache, weights, lens, tables, schedule, 256), strict=True):
        assert got is given


def test_kernels_that_do_not_load_are_said_at_import(deep_gemm: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    deep_gemm("0")
    with pytest.raises(ImportError, match=r"moet_kernels\.dispatch"):
        deep_gemm(None)


def test_a_request_number_a_row_is_refused(deep_gemm: Load, kernel: Kernel) -> None:
    module = deep_gemm(None)
    q, cache, weights, lens, tables = _arguments(PAGE, "fp8", 1)
    indices = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"^indices: \[2\]"):
        module.get_paged_mqa_logits_metadata(lens, PAGE, SM_COUNT, indices=indices)
    schedule = module.get_paged_mqa_logits_metadata(lens, PAGE, SM_COUNT)
    with pytest.raises(ValueError, match=r"^indices: \[2\]"):
        module.fp8_fp4_paged_mqa_logits(q, cache, weights, lens, tables, schedule, 256, indices=indices)


@pytest.mark.parametrize(("switch", "native"), [("1", list(range(1, 9))), ("0", list(range(1, 13)))])
def test_more_rows_than_the_kernel_takes_are_flattened(deep_gemm: Load, switch: str, native: list[int]) -> None:
    module = deep_gemm(switch)
    assert [next_n for next_n in range(1, 13) if module.native_next_n_supported(next_n)] == native


@pytest.mark.parametrize(
    ("capability", "page", "lines"),
    [
        ((12, 0), 128, []),
        ((12, 0), 64, ["VLLM_MOET_PAGED_MQA_LOGITS: DeepGEMM where pages have 64 keys"]),
        ((9, 0), 64, ["VLLM_MOET_PAGED_MQA_LOGITS: DeepGEMM where the device is not of compute capability 12.0"]),
    ],
)
def test_what_stays_with_deepgemm_is_logged_once(
    deep_gemm: Load,
    kernel: Kernel,
    device: Device,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    page: int,
    lines: list[str],
) -> None:
    module = deep_gemm(None)
    device(*capability)
    _record(module, monkeypatch)
    for _ in range(3):
        q, cache, weights, lens, tables = _arguments(page, "fp8", 1)
        schedule = module.get_paged_mqa_logits_metadata(lens, page, SM_COUNT)
        module.fp8_fp4_paged_mqa_logits(q, cache, weights, lens, tables, schedule, 256)
    assert logged == lines


def test_deepgemm_still_refuses_such_pages() -> None:
    """Why the step exists: what the bundled library asserts before it launches, for the schedule and for logits."""
    (library,) = Path(vllm.third_party.deep_gemm.__file__).parent.glob("_C_extension*.so")
    code = library.read_bytes()
    assert b"(arch_major == 12 and (block_kv == 32 or block_kv == 64))" in code
    assert b"\0block_kv == 32 or block_kv == 64\0" in code


@dataclass(frozen=True)
class Keys:
    """Paged index keys of some requests: the cache that vLLM wrote, and the keys that went in."""

    cache: torch.Tensor
    tables: torch.Tensor
    keys: list[torch.Tensor]


def _layout(form: str, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], Keys]:
    """Requests of SEQ_LENS keys in shuffled pages whose stride is padded: what to write, and where."""
    columns = -(-max(SEQ_LENS) // PAGE) + 1
    pages = [-(-length // PAGE) for length in SEQ_LENS]
    order = torch.randperm(sum(pages) + 1, generator=generator).to(torch.int32)
    size = PAGE * KEY_BYTES[form][0]
    cache = torch.full((sum(pages) + 1, size + 512), 0xEE, dtype=torch.uint8)
    tables = torch.zeros(len(SEQ_LENS), columns, dtype=torch.int32)
    slots, keys, first = [], [], 0
    for request, (length, count) in enumerate(zip(SEQ_LENS, pages, strict=True)):
        tables[request, :count] = order[first : first + count]
        first += count
        positions = torch.arange(length)
        slots.append(tables[request, positions // PAGE].long() * PAGE + positions % PAGE)
        keys.append(torch.randn(length, HEAD_DIM, generator=generator).bfloat16())
    view = cache[:, :size].unflatten(1, (PAGE, -1))
    return {"keys": torch.cat(keys), "slots": torch.cat(slots), "cache": view}, Keys(view, tables, keys)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Keys]:
    """Keys by format, written by vLLM's own kernel in a process whose Triton interprets."""
    folder = tmp_path_factory.mktemp("keys")
    laid = {form: _layout(form, torch.Generator().manual_seed(1)) for form in KEY_BYTES}
    torch.save([case for case, _ in laid.values()], folder / "cases")
    subprocess.run(
        [sys.executable, Path(__file__).with_name("write_index_keys.py"), folder / "cases", folder / "written"],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        check=True,
    )
    caches = torch.load(folder / "written")
    return {
        form: Keys(cache, keys.tables, keys.keys) for (form, (_, keys)), cache in zip(laid.items(), caches, strict=True)
    }


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _values(packed: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """MXFP4 as numbers: two E2M1 a byte, the low half first, one UE8M0 for 32."""
    nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).long()
    return E2M1[nibbles] * torch.exp2(exponents.float() - 127).repeat_interleave(32, dim=-1)


def _unpack(page: torch.Tensor, form: str) -> torch.Tensor:
    """The keys of a page [128, 128], of its bytes: all values, then all scales."""
    data = page.flatten()
    values, scales = data[: PAGE * KEY_BYTES[form][1]].clone(), data[PAGE * KEY_BYTES[form][1] :].clone()
    if form == "mxfp4":
        return _values(values.view(PAGE, -1), scales.view(PAGE, -1))
    return values.view(torch.float8_e4m3fn).view(PAGE, -1).float() * scales.view(torch.float32)[:, None]


def _keys(keys: Keys, form: str, request: int, length: int) -> torch.Tensor:
    """The first `length` keys of a request, in a row."""
    pages = keys.tables[request, : -(-length // PAGE)].tolist()
    return torch.cat([_unpack(keys.cache[page], form) for page in pages])[:length]


@pytest.mark.parametrize("form", KEY_BYTES)
def test_vllm_writes_the_layout_that_the_kernel_reads(written: dict[str, Keys], form: str) -> None:
    keys = written[form]
    # Half a step of the format at the largest value of a block.
    coarse = {"fp8": 2**-4, "mxfp4": 2**-2}[form]
    for request, given in enumerate(keys.keys):
        normal = given.float() * given.float().pow(2).mean(dim=1, keepdim=True).rsqrt()
        got = _keys(keys, form, request, len(given))
        assert (got - normal).abs().max() <= coarse * normal.abs().max()
        assert (got - normal).norm() < coarse * normal.norm()


@dataclass(frozen=True)
class Queries:
    """Query rows [tokens, 32, 128] as a format has them, and as numbers."""

    values: torch.Tensor
    scales: torch.Tensor | None
    numbers: torch.Tensor


def _queries(form: str, tokens: int) -> Queries:
    generator = torch.Generator().manual_seed(2)
    if form == "fp8":
        values = torch.randn(tokens, HEADS, HEAD_DIM, generator=generator).to(torch.float8_e4m3fn)
        return Queries(values, None, values.float())
    packed = torch.randint(256, (tokens, HEADS, HEAD_DIM // 2), generator=generator, dtype=torch.uint8)
    exponents = torch.randint(120, 130, (tokens, HEADS, HEAD_DIM // 32), generator=generator, dtype=torch.uint8)
    return Queries(packed, exponents.view(torch.int32).squeeze(-1), _values(packed, exponents))


def _builder(config: VllmConfig, monkeypatch: pytest.MonkeyPatch, columns: int, ratio: int = 1) -> Any:
    monkeypatch.setattr(indexer, "num_compute_units", lambda index: SM_COUNT)
    spec = MLAAttentionSpec(block_size=PAGE, num_kv_heads=1, head_size=132, dtype=torch.uint8, tokens_per_state=ratio)
    with set_current_vllm_config(config):
        return indexer.DeepseekV32IndexerMetadataBuilder(
            spec, ["layer"], config, torch.device("cpu"), block_table_width=columns
        )


def _batch(query_lens: list[int], tables: torch.Tensor) -> CommonAttentionMetadata:
    starts = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    lens = torch.tensor(SEQ_LENS, dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lens,
        seq_lens_cpu_upper_bound=lens,
        num_reqs=len(query_lens),
        num_actual_tokens=sum(query_lens),
        max_query_len=max(query_lens),
        max_seq_len=max(SEQ_LENS),
        block_table_tensor=tables,
        slot_mapping=torch.arange(sum(query_lens)),
    )


def _speculating(serve_config: Configure, tokens: int) -> VllmConfig:
    draft = f'{{"method": "ngram", "num_speculative_tokens": {tokens}, "prompt_lookup_max": 3}}'
    return serve_config(*(["--speculative-config", draft] if tokens else []))


@pytest.mark.parametrize("form", KEY_BYTES)
@pytest.mark.parametrize(
    ("draft_tokens", "native", "query_lens"),
    [(0, False, [1] * 5), (5, False, [6, 1, 3, 6, 2]), (5, True, [6] * 5), (7, True, [8] * 5)],
    ids=["one row", "flattened", "six rows", "eight rows"],
)
def test_decode_selects_the_keys_that_score_highest(
    kernel: Kernel,
    written: dict[str, Keys],
    serve_config: Configure,
    monkeypatch: pytest.MonkeyPatch,
    draft_tokens: int,
    native: bool,
    query_lens: list[int],
    form: str,
) -> None:
    """From a batch to the selected positions through vLLM's own code; only the kernel is the oracle instead."""
    keys, tokens = written[form], sum(query_lens)
    monkeypatch.setattr(indexer, "_SM120_NATIVE_NEXT_N", native)
    builder = _builder(_speculating(serve_config, draft_tokens), monkeypatch, keys.tables.shape[1])
    metadata = builder.build(0, _batch(query_lens, keys.tables))
    context = SimpleNamespace(attn_metadata={"layer": metadata}, cudagraph_runtime_mode=CUDAGraphMode.FULL)
    monkeypatch.setattr(sparse_attn_indexer, "get_forward_context", lambda: context)

    queries = _queries(form, tokens)
    weights = torch.rand(tokens, HEADS, generator=torch.Generator().manual_seed(3)) - 0.3
    selected = torch.zeros(tokens, TOP_K, dtype=torch.int32)
    sparse_attn_indexer.sparse_attn_indexer(
        hidden_states=torch.zeros(tokens, 1),
        k_cache_prefix="layer",
        kv_cache=keys.cache,
        q_quant=queries.values,
        q_scale=queries.scales,
        k=None,
        weights=weights,
        quant_block_size=128,
        scale_fmt="ue8m0",
        topk_tokens=TOP_K,
        head_dim=HEAD_DIM,
        max_model_len=4 * PAGE,
        total_seq_lens=4 * PAGE,
        topk_indices_buffer=selected,
        skip_k_cache_insert=True,
        use_pcp=False,
        pcp_shard_decode_requests=False,
        dense_mha_metadata_layer_name="",
        use_fp4_cache=form == "mxfp4",
        topk_backend="torch",
    )

    (call,) = kernel.calls
    assert call["q"].shape[:2] == ((5, query_lens[0]) if native else (tokens, 1))
    # A CUDA graph replays with the buffer that build() fills before.
    assert call["schedule"].data_ptr() == builder.scheduler_metadata_buffer.data_ptr()
    row = 0
    for request, (length, rows) in enumerate(zip(SEQ_LENS, query_lens, strict=True)):
        for seen in range(length - rows + 1, length + 1):
            products = queries.numbers[row] @ _keys(keys, form, request, seen).T
            scores = (products.relu() * weights[row][:, None]).sum(dim=0)
            best = scores.topk(min(TOP_K, seen)).values
            found = selected[row][selected[row] >= 0].long()
            assert len(set(found.tolist())) == len(best)
            torch.testing.assert_close(scores[found].sort(descending=True).values, best, rtol=1e-4, atol=1e-3)
            row += 1


def test_a_draft_step_makes_a_schedule_of_its_own(
    kernel: Kernel, written: dict[str, Keys], serve_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = written["fp8"].tables
    builder = _builder(_speculating(serve_config, 0), monkeypatch, tables.shape[1])
    metadata = builder.build(0, _batch([1] * 5, tables))
    metadata.seq_lens = metadata.seq_lens + 1
    metadata.block_table = tables
    builder.update_draft_decode_metadata(metadata)
    before, after = kernel.schedules
    torch.testing.assert_close(after[0], before[0] + 1)
    assert after[1:] == before[1:] == (PAGE, SM_COUNT)
    assert metadata.decode.schedule_metadata[0, 0] == 14


def test_layers_that_compress_keep_deepgemms_pages(
    kernel: Kernel, serve_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tokens a key make pages of 64 keys, for the schedule as for the cache."""
    builder = _builder(_speculating(serve_config, 0), monkeypatch, 4, ratio=2)
    assert builder.kv_cache_spec.num_states == 64
    from vllm.utils import deep_gemm

    assert deep_gemm.moet_paged_mqa_logits(builder.kv_cache_spec.num_states) is None
    assert deep_gemm.moet_paged_mqa_logits(PAGE) is not None
