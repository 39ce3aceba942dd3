"""Compiles the kernels that write DeepSeek V4.1's caches for sm_120a without a device; prints their PTX as JSON.

Of each kernel, {"on": PTX, "off": PTX}: launched as a dependent, and not. Run with CUDA_VISIBLE_DEVICES empty, with
which vLLM imports Triton where there is no device.
"""

import json
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vllm.models.deepseek_v41.common.ops import fused_compress_quant_cache as cache
from vllm.models.deepseek_v41.common.ops import indexer_k_store

# Where a value is a pointer; the rest of the arguments that are no constants are 32-bit numbers.
POINTERS = {
    "raw": "*fp32",
    "positions": "*i64",
    "state": "*fp32",
    "state_slots": "*i64",
    "query_start_loc": "*i32",
    "req_ids": "*i32",
    "norm_weight": "*bf16",
    "latent": "*bf16",
    "prev_rows": "*fp32",
    "prev_row_indices": "*i64",
    "cos_sin": "*fp32",
    "cache": "*u8",
    "cache_slots": "*i64",
    "fp8_scale": "*fp32",
    "k_pre_ptr": "*bf16",
    "positions_ptr": "*i64",
    "rms_norm_weight_ptr": "*bf16",
    "rms_norm_eps": "fp32",
    "cos_sin_cache_ptr": "*fp32",
    "k_cache_ptr": "*u8",
    "kv_slot_mapping_ptr": "*i64",
}

COMPRESS = {
    "RAW_STRIDE": 1024,
    "PREV_ROW_STRIDE": 1,
    "STATE_STRIDE": 8192,
    "STATE_ROW_STRIDE": 1024,
    "STATE_BLOCK": 8,
    "EPS": 1e-6,
    "JOIN_ROW_PTRS": True,
    "HAS_PREV_ROWS": False,
}
INSERT = {"COS_STRIDE": 64, "CACHE_STRIDE": 64 * 584, "CACHE_BLOCK": 64, "COMPRESS_RATIO": 1}
RECORD = {**INSERT, "SANITIZE_CACHE_NANS": False}
KEYS = {
    "HEAD_SIZE": 128,
    "ROPE_HEAD_DIM": 64,
    "COMPRESS_RATIO": 1,
    "TOKEN_STRIDE": 128,
    "SCALE_DIM": 4,
    "KV_BLOCK_STRIDE": 128 * 132,
    "FP8_MAX": 448.0,
    "USE_FP4": False,
    "MX_SCALE": False,
    "SHUFFLE": False,
    "BLOCK_TILE_SIZE": 16,
    "HEAD_TILE_SIZE": 16,
}

# Kernel, constants and warps, by what it does.
CASES: dict[str, tuple[Any, dict[str, Any], int]] = {
    "compress by 1": (cache._fused_save_compress_norm_kernel, {**COMPRESS, "COMPRESS_RATIO": 1}, 4),
    "compress by 2": (cache._fused_save_compress_norm_kernel, {**COMPRESS, "COMPRESS_RATIO": 2}, 4),
    "insert 584 B": (cache._rope_quant_insert_kernel, RECORD, 4),
    "insert 528 B": (cache._rope_quant_insert_mxfp8_kernel, RECORD, 4),
    "insert 288 B": (cache._rope_quant_insert_nvfp4_kernel, RECORD, 4),
    "insert plain": (cache._rope_plain_insert_kernel, {**INSERT, "ROW_STRIDE": 512, "STORE_FP8": False}, 4),
    "keys in FP8": (indexer_k_store._indexer_k_norm_rope_quant_store_kernel, KEYS, 1),
    "keys in MXFP4": (
        indexer_k_store._indexer_k_norm_rope_quant_store_kernel,
        {**KEYS, "USE_FP4": True, "TOKEN_STRIDE": 64, "KV_BLOCK_STRIDE": 128 * 68},
        1,
    ),
}


def ptx(kernel: Any, constants: dict[str, Any], warps: int, dependent: bool) -> str:
    """PTX of a kernel for sm_120a, whose cubin was assembled too."""
    constants = {**constants, "LAUNCH_PDL": dependent}
    pointers = POINTERS if "STORE_FP8" not in constants else {**POINTERS, "cache": "*bf16"}
    types = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in kernel.arg_names}
    built = triton.compile(
        ASTSource(fn=kernel, signature=types, constexprs=constants),
        target=GPUTarget("cuda", 120, 32),
        options={"num_warps": warps, "launch_pdl": dependent},
    )
    return str(built.asm["ptx"]) if built.asm["cubin"] else ""


print(
    json.dumps(
        {name: {"on": ptx(*case, dependent=True), "off": ptx(*case, dependent=False)} for name, case in CASES.items()}
    )
)
