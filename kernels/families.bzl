"""The families of kernels, for what is done to each of them."""

FAMILIES = [
    "mxfp8_gemv",
    "skinny_gemm",
]

# Those that are also built with the shared memory of sm_120 on every architecture, for tests on another GPU.
NARROW = ["mxfp8_gemv"]
