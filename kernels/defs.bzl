"""The façade for kernels: one macro makes a family's library, its gate and the commands on it."""

load("@rules_python//python:py_binary.bzl", "py_binary")
load("//kernels/private:library.bzl", _library = "kernel_library")
load("//tools/python:pytest.bzl", "pytest_test")

def kernel_library(name, srcs, hdrs = [], gate = "gate.json", python = ["op.py", "reference.py"], **kwargs):
    """Makes everything that one family of kernels consists of.

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
