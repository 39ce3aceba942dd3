"""The families of kernels, for what is done to each of them."""

FAMILIES = [
    "moe_front",
    "mxfp8_gemv",
    "paged_mqa_logits",
    "skinny_gemm",
]

# Those that are also built with the shared memory of sm_120 on every architecture, for tests on another GPU.
NARROW = [
    "mxfp8_gemv",
    "paged_mqa_logits",
]

# For the table in README.md. Numerics: the class of a step that takes the family (docs/maintain.md).
ABOUT = {
    "moe_front": {
        "computes": "router logits to top-k, and quantized activations in the order of the experts",
        "numerics": "rounding",
    },
    "mxfp8_gemv": {
        "computes": "MXFP8 [M, K] x [N, K]^T, M 1 to 64, plain and by groups",
        "numerics": "rounding",
    },
    "paged_mqa_logits": {
        "computes": "the sparse indexer's logits over a paged cache of FP8 or MXFP4 keys",
        "numerics": "rounding",
    },
    "skinny_gemm": {
        "computes": "bf16 [M, K] x [N, K]^T, M 1 to 16",
        "numerics": "rounding",
    },
}
