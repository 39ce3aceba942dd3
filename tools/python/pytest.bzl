"""pytest_test: a py_test that runs pytest over its sources."""

load("@rules_python//python:py_test.bzl", "py_test")

def pytest_test(name, srcs, deps = [], data = [], args = [], **kwargs):
    """Runs pytest, from the pinned wheels, over the given test files.

    Args:
      name: target name.
      srcs: test files; conftest.py may be among them and is not itself run.
      deps: py_library targets that the tests import.
      data: run-time files.
      args: further pytest arguments.
      **kwargs: passed to py_test (size, tags, env, ...).
    """
    tests = [s for s in srcs if not s.endswith("conftest.py")]
    py_test(
        name = name,
        srcs = srcs + ["//tools/python:pytest_main.py"],
        args = ["$(rootpath %s)" % s for s in tests] + args,
        data = data + srcs,
        main = "//tools/python:pytest_main.py",
        python_version = "PY3",
        deps = deps + ["@pypi_tools_pytest//:lib"],
        **kwargs
    )
