"""Compile the paged MQA logits header of vLLM's DeepGEMM, for 128-row pages, with the flags that its JIT passes."""

import importlib.util
import json
import subprocess
import tempfile
from pathlib import Path

# next_n, heads, head dim, page rows, 2-D lengths, varlen, Q stages, KV stages, split, TMA and math threads, logits.
_SOURCE = """
#include <deep_gemm/impls/sm120_fp8_paged_mqa_logits.cuh>
using namespace deep_gemm;
static void __instantiate_kernel() {
  auto ptr = reinterpret_cast<void*>(
      &sm120_fp8_paged_mqa_logits<2, 32, 128, 128, true, false, 3, 3, 128, 128, 256, float>);
}
"""
_FLAGS = [
    "-std=c++20",
    "--gpu-architecture=sm_120a",
    "--compiler-options=-fPIC,-O3,-fconcepts,-Wno-deprecated-declarations,-Wno-abi",
    "--diag-suppress=39,161,174,177,186,940",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "--ptxas-options=--verbose",
]


def main() -> None:
    """Compile with the nvcc that DeepGEMM finds (`which nvcc`) and report the registers and spills."""
    package = importlib.util.find_spec("vllm")
    assert package and package.origin
    include = Path(package.origin).parent / "third_party" / "deep_gemm" / "include"
    nvcc = subprocess.run(["which", "nvcc"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        source, cubin = Path(name, "kernel.cu"), Path(name, "kernel.cubin")
        source.write_text(_SOURCE)
        command = [nvcc, *_FLAGS, f"-I{include}", "-cubin", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        spills = [line for line in done.stderr.splitlines() if "spill" in line]
        print(json.dumps({"bytes": cubin.stat().st_size, "spills": spills}))


main()
