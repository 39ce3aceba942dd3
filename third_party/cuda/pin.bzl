"""What the CUDA toolchain takes beyond the wheels of the dsv41 closure: the two tools that read machine code.

The compiler itself (nvcc, cicc, ptxas), the runtime and the headers are those of third_party/python/dsv41.lock.bzl,
so that kernels are built with what the image compiles with at run time. The closure has no disassembler; 13.2.86 is
the oldest that the index offers, and reads what 13.0 wrote.

To bump: with the closure. `pip index versions NAME`, then `pip download --no-deps NAME==VERSION` and `sha256sum`.
"""

CUOBJDUMP = struct(
    name = "nvidia-cuda-cuobjdump",
    version = "13.2.86",
    file = "nvidia_cuda_cuobjdump-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256 = "d332c2ffe78e703ca0a3894be927f83124244e2acf0d792b8c12b4362d44d837",
)

NVDISASM = struct(
    name = "nvidia-cuda-nvdisasm",
    version = "13.2.86",
    file = "nvidia_cuda_nvdisasm-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256 = "53606e719ecae07a2335f95902d5a1393a0cc1c317499ee7ffcf628a44385f2c",
)
