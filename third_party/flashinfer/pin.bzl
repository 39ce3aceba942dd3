"""FlashInfer: attention and quantization kernels. vLLM's requirements choose the version; its wheel is
locked in third_party/python/dsv41.lock.bzl.

To bump: with vLLM. Then set version and commit (flashinfer/_build_meta.py of the wheel).
"""

FLASHINFER = struct(
    name = "flashinfer-python",
    version = "0.7.2.post1",
    commit = "beabf5004585b03da60e927bbb803acbaa62fe36",
)
