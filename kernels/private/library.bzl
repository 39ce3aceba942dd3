"""The rule behind //kernels:defs.bzl: sources to one shared library, its machine code and its gate report."""

# What every library has machine code for, and nothing else: sm_120a is served, sm_90a is where tests can run.
ARCHITECTURES = ["sm_90a", "sm_120a"]

# The architecture whose machine code the gate reads.
_GATED = "sm_120a"

# The oldest torch that a library loads into: the one of the machines that run the GPU tests.
_TORCH_TARGET_VERSION = "0x020b000000000000"

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra",
    "--Werror=all-warnings",
]

_CXX_FLAGS = [
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DTORCH_TARGET_VERSION=" + _TORCH_TARGET_VERSION,
    "-DUSE_CUDA",
]

# A fixed environment: compilers look at more than they say.
_ENV = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "0"}

def _compile_cuda(ctx, cuda, src):
    """nvcc: one .cu to an object with machine code of every architecture; then its sm_120a code on its own."""
    stem = ctx.label.name + "/" + src.basename
    obj = ctx.actions.declare_file(stem + ".o")
    cubin = ctx.actions.declare_file("%s.%s.cubin" % (stem, _GATED))
    sources = [src] + ctx.files.hdrs
    args = ctx.actions.args()
    args.add("--nvcc", cuda.nvcc)
    args.add("--host-compiler", cuda.gxx)
    args.add("--key", ("%s.%s.%s" % (ctx.label.package, ctx.label.name, src.basename)).replace("/", "."))
    args.add("--object", obj)
    args.add_all(sources, before_each = "--source")
    args.add_all(ARCHITECTURES, before_each = "--architecture")
    args.add("--")
    args.add_all(_NVCC_FLAGS)
    args.add_all(ctx.attr.defines, format_each = "-D%s")
    ctx.actions.run(
        outputs = [obj],
        inputs = sources + [cuda.toolkit, cuda.gcc],
        executable = ctx.executable._nvcc,
        arguments = [args],
        env = _ENV,
        mnemonic = "Nvcc",
        progress_message = "Compiling %s" % src.short_path,
    )
    args = ctx.actions.args()
    args.add("--cuobjdump", cuda.cuobjdump)
    args.add_all(ARCHITECTURES, before_each = "--architecture")
    args.add("--extract", _GATED)
    args.add("--output", cubin)
    args.add(obj)
    ctx.actions.run(
        outputs = [cubin],
        inputs = [obj, cuda.toolkit],
        executable = ctx.executable._machine_code,
        arguments = [args],
        env = _ENV,
        mnemonic = "MachineCode",
    )
    return obj, cubin

def _compile_cxx(ctx, cuda, src):
    """g++: one .cpp to an object."""
    obj = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, src.basename))
    args = ctx.actions.args()
    args.add_all(_CXX_FLAGS)
    args.add_all(ctx.attr.defines, format_each = "-D%s")
    args.add("-I.")
    for folder in [cuda.torch_include, cuda.include]:
        args.add("-isystem", folder)

        # Names of headers are in messages; where they lie is the build's affair.
        args.add("-ffile-prefix-map=%s=include" % folder)
    args.add("-c", src)
    args.add("-o", obj)
    ctx.actions.run(
        outputs = [obj],
        inputs = [src, cuda.toolkit, cuda.torch_headers, cuda.gcc] + ctx.files.hdrs,
        executable = cuda.gxx,
        arguments = [args],
        env = _ENV,
        mnemonic = "Cxx",
        progress_message = "Compiling %s" % src.short_path,
    )
    return obj

def _link(ctx, cuda, objects):
    """g++: objects to the library. What nobody calls stays out, and the CUDA runtime in it is nobody else's."""
    library = ctx.actions.declare_file(ctx.label.name + ".so")
    args = ctx.actions.args()
    args.add("-shared")
    args.add_all(objects)
    args.add(cuda.archive)
    args.add("-L" + cuda.torch_library_folder)
    args.add_all([
        # torch's own libraries are loaded where their symbols are not seen by others.
        "-Wl,--no-as-needed",
        "-ltorch",
        "-Wl,--as-needed",
        "-lpthread",
        "-ldl",
        "-lrt",
        "-Wl,--build-id=none",
        "-Wl,--exclude-libs,ALL",
        "-Wl,-soname," + library.basename,
        "-Wl,-z,relro,-z,now",
    ])
    args.add("-o", library)
    ctx.actions.run(
        outputs = [library],
        inputs = objects + [cuda.toolkit, cuda.torch_libraries, cuda.gcc],
        executable = cuda.gxx,
        arguments = [args],
        env = _ENV,
        mnemonic = "KernelLink",
        progress_message = "Linking %s" % library.short_path,
    )
    return library

def _report(ctx, cuda, library, cubins):
    report = ctx.actions.declare_file(ctx.label.name + ".gate.json")
    args = ctx.actions.args()
    args.add("--tools", cuda.nvcc.rpartition("/")[0])
    args.add("--family", ctx.label.name)
    args.add_all(ARCHITECTURES, before_each = "--architecture")
    args.add("--library", library)
    args.add_all(cubins, before_each = "--cubin")
    args.add("--output", report)
    ctx.actions.run(
        outputs = [report],
        inputs = cubins + [library, cuda.toolkit],
        executable = ctx.executable._report,
        arguments = [args],
        env = _ENV,
        mnemonic = "GateReport",
        progress_message = "Reading the machine code of %s" % ctx.label,
    )
    return report

def _kernel_library_impl(ctx):
    cuda = ctx.toolchains["//third_party/cuda:toolchain_type"].cuda
    objects, cubins = [], []
    for src in ctx.files.srcs:
        if src.extension == "cu":
            obj, cubin = _compile_cuda(ctx, cuda, src)
            cubins.append(cubin)
        else:
            obj = _compile_cxx(ctx, cuda, src)
        objects.append(obj)
    if not cubins:
        fail("%s: srcs: expected at least one .cu file" % ctx.label)
    library = _link(ctx, cuda, objects)
    report = _report(ctx, cuda, library, cubins)
    return [
        DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library])),
        OutputGroupInfo(cubins = depset(cubins), report = depset([report])),
    ]

kernel_library = rule(
    implementation = _kernel_library_impl,
    attrs = {
        "defines": attr.string_list(doc = "Macros for both compilers."),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h"]),
        "srcs": attr.label_list(allow_files = [".cpp", ".cu"], mandatory = True),
        "_machine_code": attr.label(cfg = "exec", default = "//kernels/private:machine_code", executable = True),
        "_nvcc": attr.label(cfg = "exec", default = "//kernels/private:nvcc", executable = True),
        "_report": attr.label(cfg = "exec", default = "//kernels/gate:report", executable = True),
    },
    doc = "See //kernels:defs.bzl.",
    toolchains = ["//third_party/cuda:toolchain_type"],
)
