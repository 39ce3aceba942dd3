"""The CPython 3.11 that runs build tools and tests: the distribution's own."""

_BUILD = """
load("@rules_python//python:py_runtime.bzl", "py_runtime")
load("@rules_python//python:py_runtime_pair.bzl", "py_runtime_pair")

# {version}
py_runtime(
    name = "py3",
    interpreter_path = "{path}",
    python_version = "PY3",
    stub_shebang = "#!{path}",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":py3",
)

toolchain(
    name = "toolchain",
    exec_compatible_with = ["@platforms//os:linux"],
    target_compatible_with = ["@platforms//os:linux"],
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _python_toolchain_impl(ctx):
    path = "/usr/bin/python3.11"
    if not ctx.path(path).exists:
        path = ctx.which("python3.11")
    if not path:
        fail("python3.11 is not installed: expected /usr/bin/python3.11; run ./bazelw, or apt-get install python3.11")
    version = ctx.execute([path, "-VV"]).stdout.strip().replace("\n", " ")
    ctx.file("BUILD.bazel", _BUILD.format(path = path, version = version), executable = False)

python_toolchain = repository_rule(
    implementation = _python_toolchain_impl,
    doc = """Finds CPython 3.11 on the host and declares a toolchain for it.

Prefers /usr/bin/python3.11 to what PATH says, so that a version manager's shim does not become
part of the build. Fails with the package to install when there is none.""",
    environ = ["PATH"],
    local = True,
)
