"""The CUDA toolchain: nvcc, g++, the CUDA runtime, and the torch headers and library that extensions build against."""

def _cuda_toolchain_impl(ctx):
    root = ctx.file.toolkit.path + "/" + ctx.attr.prefix
    return [platform_common.ToolchainInfo(
        cuda = struct(
            archive = root + "/lib/libcudart_static.a",
            cuobjdump = root + "/bin/cuobjdump",
            gcc = ctx.file.gcc,
            gxx = ctx.file.gcc.path + "/launch/g++",
            include = root + "/include",
            nvcc = root + "/bin/nvcc",
            nvdisasm = root + "/bin/nvdisasm",
            ptxas = root + "/bin/ptxas",
            toolkit = ctx.file.toolkit,
            torch_headers = ctx.file.torch_headers,
            torch_include = ctx.file.torch_headers.path + "/torch/include",
            torch_libraries = ctx.file.torch_libraries,
            torch_library_folder = ctx.file.torch_libraries.path + "/torch/lib",
        ),
    )]

cuda_toolchain = rule(
    implementation = _cuda_toolchain_impl,
    attrs = {
        "gcc": attr.label(
            allow_single_file = True,
            cfg = "exec",
            doc = "A gcc_tree: nvcc drives its g++, which also compiles C++ and links.",
            mandatory = True,
        ),
        "prefix": attr.string(default = "nvidia/cu13", doc = "Where in the toolkit bin, include and lib are."),
        "toolkit": attr.label(allow_single_file = True, cfg = "exec", mandatory = True),
        "torch_headers": attr.label(allow_single_file = True, cfg = "exec", mandatory = True),
        "torch_libraries": attr.label(allow_single_file = True, cfg = "exec", mandatory = True),
    },
    doc = "ToolchainInfo with `cuda`: the files of the toolkit (a folder), of g++ and of torch, and paths in them.",
)
