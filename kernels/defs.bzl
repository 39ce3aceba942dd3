"""The façade for kernels: kernel_library makes a library and its gate, kernel_family all that a family consists of."""

load("@rules_python//python:py_binary.bzl", "py_binary")
load("@rules_python//python:py_library.bzl", "py_library")
load("//kernels/private:library.bzl", _library = "kernel_library")
load("//tools/python:pytest.bzl", "pytest_test")
load(":families.bzl", "NARROW")

def kernel_library(name, srcs, hdrs = [], gate = "gate.json", python = ["op.py", "reference.py"], **kwargs):
    """Makes a library of kernels, its gate and the commands on it.

    Targets:
      <name>: the library <name>.so, an extension for torch: one file, no Python in it, loaded with
        torch.ops.load_library. Machine code for sm_90a and sm_120a, and nothing else. Output groups: `cubins` (the
        sm_120a code of each .cu, as it is in the library) and `report` (what the gate measured).
      <name>.files: what an image installs of the family: the library, its Python face and its oracle.
      <name>.gate_test: compares the report with the one on record.
      gate: `bazel run //<package>:gate` shows the difference, `-- --accept` puts the report on record.

    Args:
      name: target name; also the file's.
      srcs: .cu files, compiled by nvcc, and .cpp files, compiled by g++ against torch's stable ABI.
      hdrs: headers and filegroups of headers, included by their path from the root of the repository.
      gate: the report on record.
      python: the face and the oracle; their imports of other folders of kernels are relative.
      **kwargs: passed to the library (tags, visibility, ...).
    """
    _library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        **kwargs
    )
    native.filegroup(
        name = name + ".files",
        srcs = python + [":" + name],
    )
    native.filegroup(
        name = name + ".report",
        srcs = [":" + name],
        output_group = "report",
    )
    pytest_test(
        name = name + ".gate_test",
        size = "small",
        srcs = ["//kernels/gate:test_gate.py"],
        data = [
            gate,
            ":%s.report" % name,
        ],
        env = {
            "ACCEPT": "bazel run //%s:gate -- --accept" % native.package_name(),
            "RECORD": "$(rootpath %s)" % gate,
            "REPORT": "$(rootpath :%s.report)" % name,
        },
        deps = ["//kernels/gate"],
    )
    py_binary(
        name = "gate",
        srcs = ["//kernels/gate:accept.py"],
        args = [
            "--report",
            "$(rootpath :%s.report)" % name,
            "--record",
            "%s/%s" % (native.package_name(), gate),
        ],
        data = [":%s.report" % name],
        main = "//kernels/gate:accept.py",
        deps = ["//kernels/gate"],
    )

def kernel_family(name, hdrs = [], python = [], gpu_deps = []):
    """Makes a family of kernels from the files of its folder, whose names are the same in each (kernels/README.md).

    Targets, beside those of kernel_library:
      op, reference: the Python face and the oracle.
      reference_test, op_test: need no GPU.
      gpu_test: does, and is manual.
      narrow/<name>: of families that NARROW lists: the library with sm_120's shared memory on every architecture, which
        shows what a GPU with more can run of it. For tests.

    Args:
      name: the folder's.
      hdrs: headers of the folder beside launch.h.
      python: modules of the folder that an image installs beside op.py and reference.py; they are in `op`.
      gpu_deps: what test_gpu.py imports beside kernels/testing.
    """
    srcs = ["op.cpp", "op.cu"]
    hdrs = ["launch.h", "//kernels/common:headers", "//kernels/extension:headers"] + hdrs
    kernel_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        python = ["op.py", "reference.py"] + python,
    )
    if name in NARROW:
        _library(
            name = "narrow/" + name,
            testonly = True,
            srcs = srcs,
            hdrs = hdrs,
            defines = ["MOET_NARROW"],
            tags = ["manual"],
        )
    py_library(
        name = "op",
        srcs = ["op.py"] + python,
        data = [":" + name],
        deps = ["//kernels/extension"],
    )
    py_library(
        name = "reference",
        srcs = ["reference.py"],
        deps = ["//kernels/common"],
    )
    pytest_test(
        name = "reference_test",
        size = "small",
        srcs = ["test_reference.py"],
        deps = [
            ":reference",
            "@pypi_tools_ml_dtypes//:lib",
        ],
    )
    pytest_test(
        name = "op_test",
        size = "medium",
        srcs = ["test_op.py"],
        tags = ["local"],
        deps = [
            ":op",
            "//third_party/cuda:torch_without_gpu",
        ],
    )
    pytest_test(
        name = "gpu_test",
        size = "large",
        srcs = [
            "test_gpu.py",
            "//kernels:conftest.py",
        ],
        tags = ["gpu", "local", "manual"],
        deps = [
            ":op",
            ":reference",
            "//kernels/testing",
            "//third_party/cuda:torch_with_gpu",
        ] + gpu_deps,
    )
