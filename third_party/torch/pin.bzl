"""PyTorch, built for CUDA 13.0. vLLM's requirements choose the version; its wheel is locked in
third_party/python/dsv41.lock.bzl.

To bump: with vLLM. Then set version and commit (torch/version.py of the wheel).
"""

TORCH = struct(
    name = "torch",
    version = "2.14.0",
    commit = "08187d9e0fba026dc8217405802ab5381dc88d90",
)
