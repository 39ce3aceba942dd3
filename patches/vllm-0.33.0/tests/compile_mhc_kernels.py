"""Compiles what mHC's overlap runs for sm_120a without a device, and prints a line of JSON.

The two halves of vLLM's TileLang kernel, as CUDA source, and the bytes of the cubin of DeepGEMM's projection, which its
own headers make. Run with TILELANG_DEFAULT_TARGET naming sm_120a.
"""

import json
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import torch
import vllm
from vllm.model_executor.kernels.mhc import tilelang_kernels
from vllm.model_executor.kernels.mhc.warmup import MHC_PRE_NORM_KERNEL, compute_mhc_pre_num_splits

HIDDEN, COPIES = 5120, 4

# As DeepGEMM instantiates it for [24, 20480] (csrc/jit_kernels/impls/sm120_tf32_hc_prenorm_gemm.hpp): rows and
# columns of a block, stages that fit into 99 KiB, threads that compute and that load.
SOURCE = """
#include <deep_gemm/impls/sm120_tf32_hc_prenorm_gemm.cuh>
template __global__ void deep_gemm::sm120_tf32_hc_prenorm_gemm_impl<24, {k}, 128, 32, 64, {splits}, 4, 256, 128>(
    const uint32_t, const __grid_constant__ cute::TmaDescriptor, const __grid_constant__ cute::TmaDescriptor, float*,
    float*, const int64_t, const int64_t);
"""


def half(mode: str, splits: int) -> str:
    """CUDA source of one half of the kernel, which nvcc has compiled."""
    # Without a device vLLM leaves out what orders a dependent launch.
    tilelang_kernels.ENABLE_PDL = True
    key = MHC_PRE_NORM_KERNEL.dispatch(
        n_splits=splits,
        hidden_size=HIDDEN,
        rms_eps=1e-6,
        hc_pre_eps=1e-6,
        hc_sinkhorn_eps=1e-6,
        hc_post_mult_value=2.0,
        sinkhorn_repeat=20,
        norm_eps=1e-6,
        hc_mult=COPIES,
        use_pre_mix_in=True,
        rms_numel=COPIES * HIDDEN,
        split_mode=mode,
    )
    return str(MHC_PRE_NORM_KERNEL.kernel.compile(**asdict(key)).get_kernel_source())


def projection(splits: int) -> int:
    """Bytes of the cubin of DeepGEMM's projection."""
    headers = Path(vllm.__file__).parent / "third_party/deep_gemm/include"
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "projection.cu"), Path(folder, "projection.cubin")
        source.write_text(SOURCE.format(k=COPIES * HIDDEN, splits=splits))
        flags = ["-std=c++20", "-O3", "-arch=sm_120a", "--expt-relaxed-constexpr", f"-I{headers}"]
        subprocess.run(["nvcc", "-cubin", *flags, "-o", cubin, source], check=True)
        code = cubin.read_bytes()
    return len(code) if b"sm120_tf32_hc_prenorm_gemm_impl" in code else 0


def main() -> None:
    """Compile all three for a batch of 16 rows."""
    card = SimpleNamespace(multi_processor_count=188)
    torch.cuda.get_device_properties = lambda *_: card
    splits = compute_mhc_pre_num_splits(COPIES * HIDDEN, 16)
    found = {"splits": splits, "projection": projection(splits)}
    print(json.dumps({**found, **{mode: half(mode, splits) for mode in ("stats", "input")}}))


main()
