"""The families of kernels, for what is done to each of them."""

FAMILIES = [
    "kv_record",
    "moe_front",
    "moe_w2",
    "mxfp8_gemv",
    "p2p_allreduce",
    "paged_mqa_logits",
    "skinny_gemm",
]

# Those that are also built with the shared memory of sm_120 on every architecture, for tests on another GPU.
NARROW = [
    "moe_w2",
    "mxfp8_gemv",
    "paged_mqa_logits",
]

# For the table in README.md. Numerics: the class of a step that takes the family (docs/maintain.md).
ABOUT = {
    "kv_record": {
        "computes": "rows to the MXFP8, FP4 and MXFP4 records of a paged cache: rotated, quantized and stored",
        "numerics": "format",
    },
    "moe_front": {
        "computes": "router logits to top-k, and quantized activations in the order of the experts",
        "numerics": "rounding",
    },
    "moe_w2": {
        "computes": "MXFP8 rows times the 2-bit or FP4 weights of the experts that each chose, M 1 to 16",
        "numerics": "rounding",
    },
    "mxfp8_gemv": {
        "computes": "MXFP8 [M, K] x [N, K]^T, M 1 to 64, plain and by groups",
        "numerics": "rounding",
    },
    "p2p_allreduce": {
        "computes": "the sum of a tensor over 2 to 8 ranks of one host, through peer memory",
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
