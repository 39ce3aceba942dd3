"""Compile a kernel that includes <cuda/std/...> for sm_120a, as humming and CUTLASS's users do; print what came out."""

import json
import struct
import subprocess
import tempfile
from pathlib import Path

_SOURCE = """
#include <cuda/std/array>
#include <cuda/std/cstdint>
#include <cuda_fp8.h>

extern "C" __global__ void widen(const __nv_fp8_e4m3* in, float* out) {
  cuda::std::array<float, 4> values;
  for (cuda::std::uint32_t i = 0; i < 4; ++i) values[i] = float(in[threadIdx.x * 4 + i]);
  for (cuda::std::uint32_t i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = values[i];
}
"""


def architecture(cubin: bytes) -> dict[str, int]:
    """The machine of a cubin's ELF header (190 is CUDA) and the SM number that its flags hold in bits 8 to 15."""
    machine = struct.unpack_from("<H", cubin, 18)[0]
    flags = struct.unpack_from("<I", cubin, 48)[0]
    return {"machine": machine, "sm": flags >> 8 & 0xFF}


def main() -> None:
    """Compile and report."""
    with tempfile.TemporaryDirectory() as name:
        source, cubin = Path(name, "widen.cu"), Path(name, "widen.cubin")
        source.write_text(_SOURCE)
        command = ["nvcc", "-std=c++20", "-O3", "--gpu-architecture=sm_120a", "-cubin", "-o", str(cubin), str(source)]
        subprocess.run(command, check=True)
        print(json.dumps(architecture(cubin.read_bytes())))


main()
