"""Writes index keys into a paged cache with vLLM's own kernel, on the processor: write_index_keys.py CASES WRITTEN

CASES is a list that torch.save wrote: each a dict of `keys` [tokens, 128] bfloat16, `slots` [tokens] int64 and `cache`
[pages, rows, 132 or 68] uint8. WRITTEN gets the caches. Run with TRITON_INTERPRET=1 and CUDA_VISIBLE_DEVICES empty,
with which vLLM imports Triton where there is no device.
"""

import sys
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from vllm.models.deepseek_v41.common.ops import indexer_k_store


@triton.jit
def _e2m1(value):
    """The code of the nearest E2M1, ties to even."""
    size = tl.abs(value)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32) + (size > 1.25).to(tl.int32)
    code += (size >= 1.75).to(tl.int32) + (size > 2.5).to(tl.int32)
    code += (size >= 3.5).to(tl.int32) + (size > 5.0).to(tl.int32)
    return code + ((value.to(tl.int32, bitcast=True) >> 31) & 1) * 8


@triton.jit
def _pair(low, high):
    return (_e2m1(low) | (_e2m1(high) << 4)).to(tl.uint8)


def _rounded(values: Any, source: Any, target: Any, mode: Any) -> Any:
    """A conversion of the interpreter's, to the nearest number."""
    narrow = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn}.get(target)
    if source != tl.float32 or narrow is None:
        return _convert(values, source, target, mode)
    rounded = torch.from_numpy(np.ascontiguousarray(values).view(np.float32)).to(narrow)
    return rounded.view(torch.uint8).numpy().view(f"u{rounded.itemsize}").reshape(values.shape)


_convert = interpreter._convert_float


def main() -> None:
    """Write every case's keys, unrotated and normalized with unit weights."""
    # The interpreter has no inline PTX, and its rounding loses a carry; the rest of the kernel is vLLM's.
    indexer_k_store._fp32x2_to_fp4x2 = _pair
    interpreter._convert_float = _rounded
    source, target = sys.argv[1:]
    written = []
    for case in torch.load(source):
        keys, cache = case["keys"], case["cache"]
        unrotated = torch.cat([torch.ones(1, 32), torch.zeros(1, 32)], dim=1).expand(len(keys), 64).contiguous()
        ones = torch.ones(128, dtype=torch.bfloat16)
        indexer_k_store.indexer_k_norm_rope_store(
            keys, torch.arange(len(keys)), unrotated, ones, 0.0, cache, case["slots"], 1, cache.shape[2] == 68
        )
        written.append(cache)
    torch.save(written, target)


main()
