"""The repositories of the CUDA toolchain, and its registration."""

load("//third_party/python:fetch.bzl", "python_file")
load(":pin.bzl", "CUOBJDUMP", "NVDISASM")

def cuda_repositories():
    """Declares `@cuda_cuobjdump//:file`, `@cuda_nvdisasm//:file`, and registers the toolchain.

    Nothing is fetched until a target wants it.
    """
    for name, pin in {"cuda_cuobjdump": CUOBJDUMP, "cuda_nvdisasm": NVDISASM}.items():
        python_file(
            name = name,
            file = pin.file,
            lock = "see third_party/cuda/pin.bzl",
            project = pin.name,
            sha256 = pin.sha256,
            version = pin.version,
        )
    native.register_toolchains("//third_party/cuda:toolchain")
