"""Runs vLLM's kernel that turns attention's output back and quantizes it, on the processor; or compiles it for sm_120a.

usage: quantize_attention.py INPUTS OUTPUTS, or without arguments, which prints whether there is machine code.

INPUTS is a list that torch.save wrote: each the arguments of vllm::fused_inv_rope_fp8_quant_kernel. OUTPUTS gets what
it returns. Run with CUDA_VISIBLE_DEVICES empty, with which vLLM imports Triton where there is no device; with arguments
also with TRITON_INTERPRET=1.
"""

import sys
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import interpreter
from vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant import (
    FusedInvRopeFP8QuantKernel,
    _fused_inv_rope_fp8_quant_kernel_fake,
)

KERNEL = FusedInvRopeFP8QuantKernel.kernel


def _rounded(values: Any, source: Any, target: Any, mode: Any) -> Any:
    """A conversion of the interpreter's, to the nearest number: its own loses a carry."""
    if (source, target) != (tl.float32, tl.float8e4nv):
        return _convert(values, source, target, mode)
    rounded = torch.from_numpy(np.ascontiguousarray(values).view(np.float32)).to(torch.float8_e4m3fn)
    return rounded.view(torch.uint8).numpy().reshape(values.shape)


_convert = interpreter._convert_float


def constants(heads_per_group: int, columns: int, per_head: int, nope: int, half_rope: int) -> dict[str, Any]:
    """What the kernel is compiled for: scales in words, and no launch that depends on another."""
    return {
        "heads_per_group": heads_per_group,
        "fp8_max": 448.0,
        "eps": 1e-10,
        "QUANT_GROUP_SIZE": columns,
        "CHUNKS_PER_HEAD": per_head,
        "NOPE_DIM": nope,
        "HALF_ROPE": half_rope,
        "QUANTIZE": True,
        "TMA_ALIGNED_SCALES": True,
        "launch_pdl": False,
    }


def quantize(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel's launch as vLLM makes it, but for a GPU's options."""
    o, positions, cache, heads, columns, per_head, nope, half_rope = arguments[:8]
    rows, tokens, groups = arguments[10:13]
    out, scales = _fused_inv_rope_fp8_quant_kernel_fake(*arguments)
    KERNEL[(rows, groups * heads)](
        o_ptr=o,
        positions_ptr=positions,
        cos_sin_cache_ptr=cache,
        out_ptr=out,
        scale_ptr=scales,
        num_tokens=tokens,
        o_stride_token=o.stride(0),
        o_stride_head=o.stride(1),
        cache_stride_pos=cache.stride(0),
        out_stride_group=out.stride(0),
        out_stride_token=out.stride(1),
        scale_stride_group=scales.stride(0),
        scale_stride_k=scales.stride(2),
        **constants(heads, columns, per_head, nope, half_rope),
    )
    return out, scales


def is_compiled() -> bool:
    """Whether Triton assembles the kernel for sm_120a, for wo_a of DeepSeek-V4.1-Flash."""
    fixed = constants(8, 32, 16, 448, 32)
    types = dict.fromkeys(KERNEL.arg_names, "i32") | dict.fromkeys(fixed, "constexpr")
    pointers = {"o": "*bf16", "positions": "*i64", "cos_sin_cache": "*fp32", "out": "*fp8e4nv", "scale": "*i32"}
    types |= {f"{name}_ptr": kind for name, kind in pointers.items()}
    built = triton.compile(
        ASTSource(fn=KERNEL, signature=types, constexprs=fixed),
        target=GPUTarget("cuda", 120, 32),
        options={"num_warps": 1, "num_stages": 1},
    )
    return ".target sm_120a" in built.asm["ptx"] and bool(built.asm["cubin"])


if len(sys.argv) == 1:
    print(is_compiled())
else:
    interpreter._convert_float = _rounded
    torch.save([quantize(*arguments) for arguments in torch.load(sys.argv[1])], sys.argv[2])
