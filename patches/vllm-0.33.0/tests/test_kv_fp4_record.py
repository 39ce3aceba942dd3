"""Step kv-fp4-record: who gets V4.1's records on sm_120, what a cache of them is, how they are written and read."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import attention_layers
import numpy as np
import pytest
import stand_ins
import torch
from flashinfer.mla import _core
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.models.deepseek_v41 import attention, compressor
from vllm.models.deepseek_v41.nvidia import dspark, flashinfer_sparse
from vllm.models.deepseek_v41.nvidia.flashmla import DeepseekV4FlashMLAAttention
from vllm.platforms.interface import DeviceCapability
from vllm.utils.hashing import sha256
from vllm.v1.attention.backends.mla import indexer
from vllm.v1.core import kv_cache_utils
from vllm.v1.engine import core as engine_core
from vllm.v1.engine.core import EngineCore
from vllm.v1.kv_offload.file_mapper import FileMapper

from serving.plan import blocks
from serving.plan.blocks import Demand
from serving.plan.geometry import DSV41, FP4, FP8, Record

Configure = Callable[..., VllmConfig]
Fresh = Callable[..., ModuleType]

SWITCH, FOOTERS = "VLLM_MOET_KV_FP4_RECORD", "vllm.v1.kv_footers"
SM120 = flashinfer_sparse.DeepseekV4FlashInferSM120Attention
FILLER = 0xA5
# Of a row: bytes of codes, and of scales, as flashinfer's Dsv41Fp8Layout and Dsv41Fp4Layout have them.
WINDOW, COMPRESSED = (512, 16), (256, 32)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step switched on, in the modules that are there."""
    footers: Any = importlib.import_module(FOOTERS)
    assert footers._SM120_KV_FP4_RECORD is False
    kernels = importlib.import_module("moet_kernels.dispatch.kv_record")
    monkeypatch.setattr(footers, "_SM120_KV_FP4_RECORD", True)
    monkeypatch.setattr(footers, "kv_record", kernels, raising=False)


@pytest.fixture(scope="module", autouse=True)
def _one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with attention_layers.one_rank(tmp_path_factory.mktemp("rank")):
        yield


def few(serve_config: Configure, dtype: str, kind: type = SM120) -> tuple[VllmConfig, list[Any]]:
    """A layer of each kind: window, two of ratio 2, two of ratio 1, and the drafter's."""
    config = attention_layers.configured(serve_config, dtype, "--max-num-batched-tokens=256", "--max-num-seqs=8")
    config.model_config.max_model_len = 512
    made = attention_layers.make(kind, config, attention_layers.FEW_RATIOS, attention_layers.FEW_SOURCES, drafts=1)
    return config, made


# Who gets them.


@pytest.mark.parametrize("switch", [None, "0"], ids=["default", "off"])
def test_off_nobody_does_and_no_kernels_are_needed(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, switch: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    footers: Any = fresh(FOOTERS, **{SWITCH: switch})
    assert not footers.uses_kv_footers("nvfp4_ds_mla")
    assert footers.kv_footer_format("nvfp4_ds_mla") == ""


@pytest.mark.parametrize("dtype", ["nvfp4_ds_mla", "fp8_ds_mla", "fp8", "auto", "nvfp4"])
def test_on_the_data_type_asks_for_them(fresh: Fresh, dtype: str) -> None:
    footers: Any = fresh(FOOTERS, **{SWITCH: "1"})
    asked = dtype == "nvfp4_ds_mla"
    assert footers.uses_kv_footers(dtype) is asked
    assert footers.kv_footer_format(dtype) == ("nvfp4_ds_mla:fp8_dsv41_fp4_ca" if asked else "")


def test_on_without_the_kernels_nothing_is_served(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    with pytest.raises(ImportError, match="moet_kernels"):
        fresh(FOOTERS, **{SWITCH: "1"})


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize(
    ("capability", "upstreams", "ours"),
    [((9, 0), False, False), ((10, 0), True, False), ((12, 0), True, True), ((12, 1), False, False)],
)
def test_on_other_devices_keep_what_they_have(
    device: Callable[[int, int], None], capability: tuple[int, int], upstreams: bool, ours: bool
) -> None:
    device(*capability)
    footers: Any = importlib.import_module(FOOTERS)
    assert attention._use_v41_mxfp8_kv_record("nvfp4_ds_mla") is upstreams
    assert footers.uses_kv_footers("nvfp4_ds_mla") is ours
    assert attention._use_v41_mxfp8_kv_record("fp8_ds_mla") is (capability[0] == 10)


def test_off_the_data_type_is_refused_as_upstream_has_it(serve_config: Configure) -> None:
    assert attention.uses_kv_footers("nvfp4_ds_mla") is False
    with pytest.raises(ValueError, match="which FlashMLA decodes only on SM100"):
        few(serve_config, "nvfp4_ds_mla")


@pytest.mark.usefixtures("on")
def test_on_another_reader_is_refused(serve_config: Configure) -> None:
    with pytest.raises(ValueError, match="needs FlashInfer, which reads its pages, not FLASHMLA_SPARSE_DSV41; leave"):
        few(serve_config, "nvfp4_ds_mla", DeepseekV4FlashMLAAttention)


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize(("capability", "passes"), [((10, 0), False), ((12, 0), True), ((12, 1), False)])
def test_on_the_backend_says_that_it_takes_them(
    device: Callable[[int, int], None], capability: tuple[int, int], passes: bool
) -> None:
    device(*capability)
    backend = flashinfer_sparse.DeepseekV4FlashInferMLASparseBackend
    assert backend.supports_kv_cache_dtype("nvfp4_ds_mla")
    others = (512, torch.bfloat16, "nvfp4_ds_mla", 128, True, True, True, False, DeviceCapability(*capability))
    assert (backend.supports_combination(*others) is None) is passes


# What a cache of them is.


@pytest.mark.parametrize(("switched", "record"), [(False, FP8), (True, FP8), (True, FP4)])
def test_both_records_change_or_none(
    request: pytest.FixtureRequest, serve_config: Configure, switched: bool, record: Record
) -> None:
    if switched:
        request.getfixturevalue("on")
    config, layers = few(serve_config, record.name)
    for layer in layers:
        assert (layer.swa_bytes_per_token, layer.compressed_bytes_per_token) == (record.window, record.compressed)
        assert layer.kv_footers is (record is FP4)
        window: Any = layer.swa_cache_layer.get_kv_cache_spec(config)
        specs = [window, layer.get_kv_cache_spec(config)]
        if layer.compressor is not None:
            specs.append(layer.indexer.k_cache.get_kv_cache_spec(config))
        assert {spec.alignment for spec in specs if spec} == {record.alignment}
        assert window.state_content_bytes == record.window
        assert window.block_stride_alignment is None


@pytest.fixture
def demand(monkeypatch: pytest.MonkeyPatch) -> Demand:
    found = Demand(context=524_288, batch=4096, drafted=5)
    monkeypatch.setattr(VllmConfig, "num_speculative_tokens", property(lambda self: found.drafted))
    return found


@pytest.mark.usefixtures("on")
def test_tokens_in_the_same_memory(serve_config: Configure, demand: Demand, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the whole model's layers make vLLM lay out its cache; at 512K, against FP8 records with FP8 index keys.

    Twice the tokens are not in it: a smaller block holds fewer layers' windows, and each step has its tokens there.
    """
    monkeypatch.setattr(indexer, "_SM120_MXFP4_INDEXER", True)
    tokens = []
    for record, key in ((FP8, "fp8"), (FP4, "fp8"), (FP4, "mxfp4")):
        flags = (f"--max-num-batched-tokens={demand.batch}", f'--attention-config={{"indexer_kv_dtype": "{key}"}}')
        config = attention_layers.configured(serve_config, record.name, *flags)
        config.model_config.max_model_len = demand.context
        attention_layers.make(SM120, config, attention_layers.RATIOS, attention_layers.SOURCES, DSV41.draft_layers)
        plan = attention_layers.planned(config, 16 << 30)
        tokens.append(kv_cache_utils.get_kv_cache_capacity(config, plan)[0])
        ours = blocks.layout(DSV41, record, key, demand)
        fits = ours.capacity(16 << 30)
        assert (fits.blocks, fits.tokens) == (plan.num_blocks, tokens[-1])
        sizes = sorted(group.kv_cache_spec.page_size_bytes for group in plan.kv_cache_groups)
        assert sizes == sorted(group.bytes for group in ours.groups)
    fp8, records, both = tokens
    assert (records / fp8, both / fp8) == (pytest.approx(1.547, abs=1e-3), pytest.approx(1.670, abs=1e-3))


# That nobody takes them for others.


@pytest.mark.parametrize("kept", ["offload_folder", "start_of_the_hashes"])
def test_blocks_that_are_kept_are_told_apart(
    request: pytest.FixtureRequest, serve_config: Configure, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """FP8's, those with scales in place, which SM100 has under the same name, and ours; FP8's stay where they were."""
    name: Callable[[pytest.MonkeyPatch, Configure, str], str] = globals()[kept]
    upstreams = {dtype: name(monkeypatch, serve_config, dtype) for dtype in ("fp8_ds_mla", "nvfp4_ds_mla")}
    request.getfixturevalue("on")
    assert name(monkeypatch, serve_config, "fp8_ds_mla") == upstreams["fp8_ds_mla"]
    assert name(monkeypatch, serve_config, "nvfp4_ds_mla") not in upstreams.values()


def offload_folder(monkeypatch: pytest.MonkeyPatch, serve_config: Configure, dtype: str) -> str:
    """Where vLLM's disk tier keeps blocks; of layers that are all alike, lest the layout decide it."""
    config, _ = few(serve_config, "fp8_ds_mla")
    plan = attention_layers.planned(config, 1 << 30)
    monkeypatch.setattr(config.cache_config, "cache_dtype", dtype)
    transfer = SimpleNamespace(kv_connector_extra_config={}, engine_id="engine")
    monkeypatch.setattr(config, "kv_transfer_config", transfer)
    offloading = SimpleNamespace(config=build_offloading_config(config, plan))
    return str(FileMapper.from_offloading_spec("", offloading).base_path)


def start_of_the_hashes(monkeypatch: pytest.MonkeyPatch, serve_config: Configure, dtype: str) -> str:
    """What an engine's first block hash follows from, and what it tells peers to be the seed of that."""
    del serve_config
    config = MagicMock()
    config.cache_config.cache_dtype = dtype
    config.cache_config.prefix_caching_hash_algo = "sha256"
    config.max_concurrent_batches = 1
    with monkeypatch.context() as patch:
        for owner, name in (
            (engine_core, "measure_encoder_output_widths"),
            (engine_core, "engine_receiver_cache_from_config"),
            (engine_core, "StructuredOutputManager"),
            (EngineCore, "_initialize_kv_caches"),
            (EngineCore, "_initialize_effective_attention_block_size"),
            (EngineCore, "_set_kv_connector_handshake_metadata"),
        ):
            patch.setattr(owner, name, MagicMock())
        patch.setattr(engine_core, "resolve_kv_cache_block_sizes", lambda *arguments: (128, 128))
        patch.setattr(engine_core, "get_request_block_hasher", MagicMock(side_effect=InterruptedError))
        for name in ("NONE_HASH", "_NONE_HASH_SEED"):
            patch.setattr(kv_cache_utils, name, None, raising=False)
        with pytest.raises(InterruptedError):
            EngineCore(config, MagicMock(), log_stats=False)
        seed = kv_cache_utils.get_none_hash_seed()
        assert sha256(seed) == kv_cache_utils.NONE_HASH
        return f"{kv_cache_utils.hash_block_tokens(sha256, None, [1, 2, 3]).hex()} {seed}"


# That they are written and read.


class Step:
    """Six layers with caches, and a step's tokens: rows, positions and slots, some of them holes."""

    tokens = 40

    def __init__(self, serve_config: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config, self.layers = few(serve_config, "nvfp4_ds_mla")
        self.memory = attention_layers.bind_caches(self.config, FILLER)
        self.random = np.random.default_rng(10)
        self.kv, self.latent = (self.bf16(self.tokens, 512) for _ in range(2))
        self.positions = torch.from_numpy(self.random.integers(0, 8192, self.tokens))
        self.calls: list[dict[str, Any]] = []
        monkeypatch.setattr("moet_kernels.kv_record.op.kv_record", stand_ins.kv_record(self.calls))
        self.metadata: dict[str, Any] = {}
        for layer in self.layers:
            caches = {layer.swa_cache_layer.prefix: layer.swa_cache_layer.kv_cache}
            if layer.is_kv_source:
                caches[layer.prefix] = layer.kv_cache
            for prefix, cache in caches.items():
                slots = self.random.permutation(cache.shape[0] * cache.shape[1])[: self.tokens]
                slots[::7] = -1
                self.metadata[prefix] = SimpleNamespace(slot_mapping=torch.from_numpy(slots), block_size=cache.shape[1])
        attention_layers.stub_forward_context(monkeypatch, [attention, compressor], self.metadata)

    def bf16(self, *shape: int) -> torch.Tensor:
        magnitudes = np.exp2(self.random.integers(-6, 7, shape))
        return torch.from_numpy(self.random.standard_normal(shape) * magnitudes).to(torch.bfloat16)

    def check(self, layer: Any, window: torch.Tensor | None = None, compressed: torch.Tensor | None = None) -> None:
        """Holds every byte of all caches against the oracle's records, at the addresses where flashinfer's loads are.

        The layer's window has, or has not, got the rows `window`, and its compressed cache the rows `compressed`.
        """
        from moet_kernels.kv_record import reference

        untouched = torch.ones_like(self.memory, dtype=torch.bool)
        positions = self.positions.numpy()
        for rows, cache, ratio in ((window, layer.swa_cache_layer, 1), (compressed, layer, layer.compress_ratio)):
            if rows is None:
                continue
            slots = self.metadata[cache.prefix].slot_mapping.numpy()
            live = np.flatnonzero((slots >= 0) & ((positions + 1) % ratio == 0))
            assert 0 < len(live) < self.tokens
            angles = layer.rotary_emb.cos_sin_cache.numpy()[positions[live] // ratio * ratio]
            record = reference.RECORDS[cache.kv_cache.shape[2]]
            expected = record.encode(reference.rotate(rows[live].float().numpy(), angles))
            codes, scales = loads(cache.kv_cache, slots[live])
            assert np.array_equal(self.memory[codes].numpy(), expected.data)
            assert np.array_equal(self.memory[scales].numpy(), expected.scales)
            untouched[codes], untouched[scales] = False, False
        assert bool((self.memory[untouched] == FILLER).all())


def loads(cache: torch.Tensor, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Which bytes of the memory flashinfer's kernels load for rows: codes, and scales.

    As in fp8_decode/decode.cuh, with FooterScaleLayout of model/kv_storage.cuh; a cache is what
    parse_paged_kv_layout of attention_validation.h takes.
    """
    data, scales = {sum(layout): layout for layout in (WINDOW, COMPRESSED)}[cache.shape[-1]]
    page_rows, stride = cache.shape[1], cache.stride(0)
    assert cache.stride()[1:] == (cache.shape[-1], 1)
    assert cache.data_ptr() % 16 == stride % 16 == 0
    assert stride >= page_rows * cache.shape[-1]
    page, row = np.divmod(rows, page_rows)
    start = cache.storage_offset() + page * stride
    codes = (start + row * data)[:, None] + np.arange(data)
    footer = (start + page_rows * data + row * scales)[:, None] + np.arange(scales)
    return torch.from_numpy(codes), torch.from_numpy(footer)


@pytest.fixture
def step(on: None, serve_config: Configure, monkeypatch: pytest.MonkeyPatch) -> Step:
    del on
    return Step(serve_config, monkeypatch)


@pytest.mark.parametrize("number", range(6))
def test_prefill_and_decode_store_the_window(step: Step, number: int) -> None:
    layer = step.layers[number]
    q = step.bf16(step.tokens, layer.n_local_heads, 512)
    before = q.clone()
    after = layer._fused_qnorm_rope_kv_insert(q, step.kv, step.positions, step.metadata)
    step.check(layer, window=step.kv)
    (call,) = step.calls
    assert after.data_ptr() == q.data_ptr() == call["queries"].data_ptr()
    assert torch.equal(after[..., :448], before[..., :448])
    even, odd = (before[..., 448 + part :: 2].float() for part in (0, 1))
    cos, sin = (part[:, None] for part in layer.rotary_emb.cos_sin_cache[step.positions].chunk(2, dim=1))
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(2)
    torch.testing.assert_close(after[..., 448:], turned.to(torch.bfloat16))


@pytest.mark.parametrize("number", [1, 3], ids=["ratio-2", "ratio-1"])
def test_a_compressor_stores_its_latents(step: Step, number: int) -> None:
    layer = step.layers[number]
    layer.compressor.insert_cache(step.latent, step.positions, layer.rotary_emb)
    step.check(layer, compressed=step.latent)


def test_a_drafter_stores_its_context(step: Step) -> None:
    layer = step.layers[5]
    wide = step.bf16(step.tokens, 1280 + 512)
    kv = wide[:, 1280:]
    slots = step.metadata[layer.swa_cache_layer.prefix].slot_mapping
    dspark._insert_context_kv(layer, kv, step.positions, slots)
    step.check(layer, window=kv)


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_layers_that_only_store_do_so(step: Step, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    layer = step.layers[number]
    monkeypatch.setattr(layer, "_run_parallel_input_projections", lambda hidden: (None, None, None))
    monkeypatch.setattr(layer, "_split_qkv_and_norm", lambda projected: (None, None, step.kv))
    if layer.is_kv_source:
        # Triton kernels, which no GPU runs.
        monkeypatch.setattr(layer.compressor, "forward", lambda scores, positions: step.latent)
        monkeypatch.setattr(layer.indexer, "_produce_k", lambda *arguments: None)
    layer.forward_kv(step.positions, step.kv)
    step.check(layer, window=step.kv, compressed=step.latent if layer.is_kv_source else None)


class Reader:
    """Stands where flashinfer's front hands over to its kernels; what its checks let pass is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, Any]] = []
        monkeypatch.setattr(_core, "_resolve_dsv4_sparse_mla_backend", lambda device, backend: "sparse")
        monkeypatch.setattr(_core, "_is_sm120_family", lambda device: True)
        monkeypatch.setattr(_core, "device_support_pdl", lambda device: False)
        monkeypatch.setattr(_core, "_trtllm_batch_decode_sparse_mla_sm120", self.take)
        monkeypatch.setattr(flashinfer_sparse, "compute_global_topk_indices_and_lens", self.global_indices)
        monkeypatch.setattr(SM120, "_get_workspace", lambda layer, device: torch.zeros(16, dtype=torch.uint8))

    def take(self, **arguments: Any) -> torch.Tensor:
        self.calls.append(arguments)
        result: torch.Tensor = arguments["out"]
        return result

    @staticmethod
    def global_indices(local: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return local, torch.full((len(local),), local.shape[1], dtype=torch.int32)


def attend(monkeypatch: pytest.MonkeyPatch, layer: Any, tokens: int, phase: str) -> None:
    """A step of `tokens`, which all decode, or are a prompt's."""
    decodes = tokens if phase == "decode" else 0
    integers = torch.zeros(tokens, dtype=torch.int32)
    window = torch.zeros(tokens, 1, layer.window_size, dtype=torch.int32)
    swa = SimpleNamespace(
        num_decodes=decodes,
        num_decode_tokens=decodes,
        num_prefills=0 if decodes else 1,
        num_prefill_tokens=tokens - decodes,
        is_valid_token=integers > -1,
        token_to_req_indices=integers,
        decode_swa_indices=window,
        decode_swa_lens=integers,
        prefill_swa_indices=window,
        prefill_swa_lens=integers,
        query_start_loc_cpu=torch.tensor([0, tokens]),
    )
    compressed = SimpleNamespace(block_size=DSV41.block, block_table=torch.zeros(1, 1, dtype=torch.int32))
    metadata = {layer.swa_cache_layer.prefix: swa, layer.compressed_cache_prefix: compressed}
    attention_layers.stub_forward_context(monkeypatch, [flashinfer_sparse], metadata)
    q = torch.zeros(tokens, layer.n_local_heads, 512, dtype=torch.bfloat16)
    layer.forward_mqa(q, q[:, 0], torch.zeros(tokens, dtype=torch.int64), torch.empty_like(q))


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("number", range(6))
def test_flashinfer_is_given_the_pages_and_their_format(
    step: Step, monkeypatch: pytest.MonkeyPatch, number: int, phase: str
) -> None:
    reader = Reader(monkeypatch)
    layer = step.layers[number]
    attend(monkeypatch, layer, 8, phase)
    (call,) = reader.calls
    extra = call["sparse_mla_segments"][1:]
    assert len(extra) == min(layer.compress_ratio, 1)
    # Its resolver (attention_resolve.cu) refuses the mixed form without a compressed cache, and guesses no other.
    assert call["kv_cache_format"] == ("fp8_dsv41_fp4_ca" if extra else "fp8_dsv41")
    assert call["kv_scale_format"] == "ue8m0_g32"
    written = [layer.swa_cache_layer.kv_cache, *[layer._compressed_kv_cache() for _ in extra]]
    for cache, given in zip(written, [call["kv_cache"], *[segment.kv_cache for segment in extra]], strict=True):
        rows = np.arange(cache.shape[0] * cache.shape[1])
        assert given.data_ptr() == cache.data_ptr()
        for mine, theirs in zip(loads(cache, rows), loads(given.view_as(cache), rows), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("switched", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("number", [0, 1])
def test_other_records_are_read_as_ever(
    request: pytest.FixtureRequest,
    serve_config: Configure,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    switched: bool,
) -> None:
    if switched:
        request.getfixturevalue("on")
    config, layers = few(serve_config, "fp8_ds_mla")
    attention_layers.bind_caches(config, FILLER)
    reader = Reader(monkeypatch)
    attend(monkeypatch, layers[number], 8, "decode")
    (call,) = reader.calls
    assert (call["kv_cache_format"], call["kv_scale_format"]) == ("fp8", "auto")
