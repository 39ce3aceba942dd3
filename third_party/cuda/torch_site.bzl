"""torch_site: the pinned torch, and what it imports, as one Python library."""

load("//third_party/python:dsv41.lock.bzl", "WHEELS")
load("//third_party/python:repositories.bzl", "wheel_repository")

# The closure's parts that are of use with a GPU alone, gigabytes of them.
_OF_A_GPU = ("cuda-", "nvidia-", "triton")

def torch_wheels(gpu):
    """Finds torch's wheel, and those of all that it requires.

    Args:
      gpu: with what is of use with a GPU alone.

    Returns:
      Labels.
    """
    projects = ["torch"]
    for at in range(len(WHEELS)):
        if at == len(projects):
            break
        for name in WHEELS[projects[at]]["requires"]:
            if name not in projects and (gpu or not name.startswith(_OF_A_GPU)):
                projects.append(name)
    return ["@%s//:file" % wheel_repository("dsv41", project) for project in sorted(projects)]

_UNPACK = """set -eu
tree=$1 unpack=$2
shift 2
for wheel; do set -- "$@" --wheel "$wheel"; shift; done
"$unpack" "$@" --include '' --exclude torch/include/ --exclude torch/test/ "$tree"
"""

# The runtime is the real one, which loads without a driver; the others are stubs.
_STUBS = """mv "$tree"/nvidia/cu13/lib/libcudart.so.13 "$tree"/torch/lib/
rm -r "$tree"/nvidia
%s --compiler %s "$tree"/torch/lib
"""

def _torch_site_impl(ctx):
    tree = ctx.actions.declare_directory(ctx.label.name + "/site")
    cuda = ctx.toolchains["//third_party/cuda:toolchain_type"].cuda
    command, inputs = _UNPACK, ctx.files.wheels
    if ctx.file.cudart:
        command += _STUBS % (ctx.executable._stubs.path, cuda.gxx)
        inputs = inputs + [ctx.file.cudart, cuda.gcc]
    args = ctx.actions.args()
    args.add(tree.path)
    args.add(ctx.executable._unpack)
    args.add_all(ctx.files.wheels)
    if ctx.file.cudart:
        args.add(ctx.file.cudart)
    ctx.actions.run_shell(
        outputs = [tree],
        inputs = inputs,
        tools = [ctx.executable._unpack, ctx.executable._stubs],
        arguments = [args],
        command = command,
        env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        mnemonic = "TorchSite",
        progress_message = "Unpacking torch for %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree])),
        PyInfo(
            imports = depset(["%s/%s/%s/site" % (ctx.workspace_name, ctx.label.package, ctx.label.name)]),
            transitive_sources = depset([tree]),
        ),
    ]

torch_site = rule(
    implementation = _torch_site_impl,
    attrs = {
        "cudart": attr.label(
            allow_single_file = [".whl"],
            doc = "The CUDA runtime, where the wheels have no NVIDIA libraries: stubs take the others' places.",
        ),
        "wheels": attr.label_list(allow_files = [".whl"], doc = "torch and what it imports.", mandatory = True),
        "_stubs": attr.label(cfg = "exec", default = "//third_party/cuda:stub_libraries", executable = True),
        "_unpack": attr.label(cfg = "exec", default = "//third_party/cuda:unpack", executable = True),
    },
    doc = """The pinned torch, CUDA build, as a dependency of Python tests.

With `cudart`, for machines without a GPU: `torch.cuda.is_available()` is False and CPU tensors work; it loads
extensions, and shows what they register.""",
    toolchains = ["//third_party/cuda:toolchain_type"],
)
