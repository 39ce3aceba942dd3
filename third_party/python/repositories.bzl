"""Every Python wheel that Moet builds with, tests with or ships, as repositories."""

load("//third_party/vllm:pin.bzl", "VLLM")
load(":dsv41.lock.bzl", _DSV41 = "WHEELS")
load(":fetch.bzl", "python_file", "python_library")
load(":tools.lock.bzl", _TOOLS = "WHEELS")

# Lines by the name of their closure.
CLOSURES = {"dsv41": _DSV41}

def wheel_repository(closure, project):
    """Returns the repository name of one locked wheel, e.g. pypi_dsv41_torch."""
    return "pypi_%s_%s" % (closure, project.replace("-", "_").replace(".", "_"))

def python_repositories():
    """Declares `@pypi_tools_<name>//:lib` for tools and `@pypi_<closure>_<name>//:file` for images.

    Also `@pypi_wheel_<name>//:file`, a tool's wheel as it is, and `@pypi_vllm_sdist//:file`, whose tests the wheel does
    not bring.

    Names have `-` and `.` written as `_`. Nothing is fetched until a target wants it.
    """
    for project, pin in _TOOLS.items():
        python_library(
            name = wheel_repository("tools", project),
            file = pin["file"],
            lock = "//third_party/python:lock -- tools",
            project = project,
            requires = ["@%s//:lib" % wheel_repository("tools", other) for other in pin["requires"]],
            sha256 = pin["sha256"],
            version = pin["version"],
        )
        python_file(
            name = wheel_repository("wheel", project),
            file = pin["file"],
            lock = "//third_party/python:lock -- tools",
            project = project,
            sha256 = pin["sha256"],
            version = pin["version"],
        )
    for closure, wheels in CLOSURES.items():
        for project, pin in wheels.items():
            python_file(
                name = wheel_repository(closure, project),
                file = pin["file"],
                lock = "//third_party/python:lock -- " + closure,
                project = project,
                sha256 = pin["sha256"],
                version = pin["version"],
            )
    python_file(
        name = "pypi_vllm_sdist",
        file = VLLM.sdist.file,
        lock = "//third_party/python:lock -- dsv41, then see third_party/vllm/pin.bzl",
        project = VLLM.name,
        sha256 = VLLM.sdist.sha256,
        version = VLLM.version,
    )
