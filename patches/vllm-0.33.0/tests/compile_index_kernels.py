"""Compiles vLLM's MXFP4 index kernels for sm_120a without a device, and prints what came out as a line of JSON.

Run with CUDA_VISIBLE_DEVICES empty, with which vLLM imports Triton where there is no device, and CUTE_DSL_ARCH=sm_120a.
"""

import json
import tempfile
from pathlib import Path

import triton
from cutlass import Float32
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vllm.model_executor.warmup.jit_warmup_cutedsl_helper import compile_cutedsl
from vllm.models.deepseek_v4.nvidia.ops.fused_indexer_q_cutedsl import IndexerQMxFp4Kernel
from vllm.models.deepseek_v41.common.ops import indexer_k_store


def keys() -> str:
    """PTX of the kernel that writes keys into pages of 128, whose cubin was assembled too."""
    constants = {
        "HEAD_SIZE": 128,
        "ROPE_HEAD_DIM": 64,
        "COMPRESS_RATIO": 1,
        "TOKEN_STRIDE": 64,
        "SCALE_DIM": 4,
        "KV_BLOCK_STRIDE": 128 * 68,
        "FP8_MAX": 448.0,
        "USE_FP4": True,
        "MX_SCALE": False,
        "SHUFFLE": False,
        "BLOCK_TILE_SIZE": 16,
        "HEAD_TILE_SIZE": 16,
        "LAUNCH_PDL": False,
    }
    types = {
        "k_pre_ptr": "*bf16",
        "k_pre_stride": "i32",
        "positions_ptr": "*i64",
        "rms_norm_weight_ptr": "*bf16",
        "rms_norm_eps": "fp32",
        "cos_sin_cache_ptr": "*fp32",
        "cos_sin_stride": "i32",
        "k_cache_ptr": "*u8",
        "kv_slot_mapping_ptr": "*i64",
        "kv_cache_block_size": "i32",
        **dict.fromkeys(constants, "constexpr"),
    }
    kernel = indexer_k_store._indexer_k_norm_rope_quant_store_kernel
    built = triton.compile(
        ASTSource(fn=kernel, signature=types, constexprs=constants),
        target=GPUTarget("cuda", 120, 32),
        options={"num_warps": 1},
    )
    return str(built.asm["ptx"]) if built.asm["cubin"] else ""


def queries(coarsen: int, folder: str) -> str:
    """PTX of the kernel that quantizes queries, for one head a thread group or several."""
    kernel = IndexerQMxFp4Kernel()
    key = IndexerQMxFp4Kernel.CompileKey(
        head_dim=128, rope_dim=64, num_heads=32, cos_sin_dtype=Float32, weights_out_dtype=Float32, coarsen=coarsen
    )
    compile_cutedsl(
        kernel.kernel(key), *kernel.warmup_inputs(key), options=f"--enable-tvm-ffi --keep-ptx --dump-dir={folder}"
    )
    (file,) = Path(folder).glob("*.ptx")
    return file.read_text(errors="replace")


def main() -> None:
    """Compile all three."""
    found = {"keys": keys()}
    for coarsen in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            found[f"queries by {coarsen}"] = queries(coarsen, folder)
    # Of each, whether it is for sm_120a, and whether it has the instruction that makes E2M1.
    print(
        json.dumps({name: [".target sm_120a" in ptx, "cvt.rn.satfinite.e2m1x2" in ptx] for name, ptx in found.items()})
    )


main()
