"""A server's log of its memory, for tests."""

PREFIX = "(Worker_TP{} pid=7) INFO 11-29 23:43:00 [gpu_worker.py:773] "
USAGE = (
    "Free memory on device (94.1/94.97 GiB) on startup. Desired GPU memory utilization is (0.94, 89.27 GiB). "
    "Actual usage is {} GiB for consumed memory (weights + non-torch), 2.23 GiB for peak activation, and 0.42 GiB for "
    "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1` (1.0 GiB) to fit"
)
TOKENS = "GPU KV cache size: 1,490,870 tokens, Maximum concurrency for 524,288 tokens per request: 2.84x"
LOG = [
    PREFIX.format(0) + "Available KV cache memory: 3.2 GiB",
    PREFIX.format(1) + "Available KV cache memory: 3.14 GiB",
    PREFIX.format(0) + TOKENS,
    PREFIX.format(0) + USAGE.format(84.1),
    PREFIX.format(1) + USAGE.format(84.32),
]
