"""What the caches of compiled and tuned kernels do not depend on.

patches/vllm-0.33.0/tests/test_first_start.py holds the flags against vLLM's own hash of its configuration. Nothing is
imported here: that test copies this file into the image.
"""

# Flags of `vllm serve`.
FLAGS = (
    "--gpu-memory-utilization",
    "--host",
    "--kv-transfer-config",
    "--num-gpu-blocks-override",
    "--port",
    "--profiler-config",
    "--served-model-name",
)
# Variables of the container.
VARIABLES = ("NCCL_P2P_LEVEL", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_MOET_SELFTEST")
