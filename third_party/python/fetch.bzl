"""Repository rules for files of the Python package index, each pinned by name, version and SHA-256.

Where a file comes from is the business of the host's pip (its index, mirrors, proxies); what it is
is the business of the lock. Downloads go through Bazel's repository cache, so that a second output
base needs no network.
"""

_ATTRS = {
    "file": attr.string(doc = "File name, as the index has it.", mandatory = True),
    "lock": attr.string(doc = "Label of the target that remakes the lock; named in errors.", mandatory = True),
    "project": attr.string(doc = "Normalised project name.", mandatory = True),
    "sha256": attr.string(doc = "SHA-256 of the file, in hex.", mandatory = True),
    "version": attr.string(doc = "Locked version.", mandatory = True),
    "_resolve": attr.label(default = "//third_party/python:resolve.py", allow_single_file = True),
}

def _download(ctx, output):
    """Puts the pinned file at `output`: from the repository cache, else from where pip finds it."""
    if ctx.download(url = [], output = output, sha256 = ctx.attr.sha256, allow_fail = True).success:
        return
    python = ctx.which("python3")
    if not python:
        fail("python3 is not on PATH: expected an interpreter with pip; run ./bazelw")
    done = ctx.execute(
        [python, ctx.path(ctx.attr._resolve), ctx.attr.project, ctx.attr.version, ctx.attr.file],
        timeout = 300,
    )
    if done.return_code:
        fail("%s To lock what is offered now: bazel run %s" % (done.stderr.strip(), ctx.attr.lock))
    got = ctx.download(url = [done.stdout.strip()], output = output, allow_fail = True, sha256 = ctx.attr.sha256)
    if not got.success:
        fail("%s: could not be fetched with the locked SHA-256 %s (Bazel's message above says what came). If the index changed the file, look into why, then: bazel run %s" %
             (ctx.attr.file, ctx.attr.sha256, ctx.attr.lock))

def _python_file_impl(ctx):
    _download(ctx, ctx.attr.file)
    ctx.file("BUILD.bazel", """package(default_visibility = ["//visibility:public"])

exports_files(["{file}"])

filegroup(
    name = "file",
    srcs = ["{file}"],
)
""".format(file = ctx.attr.file), executable = False)

python_file = repository_rule(
    implementation = _python_file_impl,
    attrs = _ATTRS,
    doc = """One wheel or sdist, as it is: `@NAME//:file`.

A file that the index no longer offers, or that has another hash, fails with one line that names
the command which remakes the lock.""",
)

def _python_library_impl(ctx):
    _download(ctx, "wheel.zip")
    ctx.extract("wheel.zip", output = "site")
    ctx.delete("wheel.zip")
    ctx.file("BUILD.bazel", """load("@rules_python//python:py_library.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

exports_files(glob(["site/**"], exclude = ["**/* *"]))

py_library(
    name = "lib",
    srcs = glob(["site/**/*.py"], exclude = ["**/* *"]),
    data = glob(["site/**"], exclude = ["**/*.py", "**/* *"]),
    imports = ["site"],
    deps = {deps},
)

filegroup(
    name = "files",
    srcs = glob(["site/**"], exclude = ["**/* *"]),
)
""".format(deps = ctx.attr.requires), executable = False)

python_library = repository_rule(
    implementation = _python_library_impl,
    attrs = dict(_ATTRS, requires = attr.string_list(doc = "Labels of the libraries that this one imports.")),
    doc = "One wheel, unpacked, as a py_library for build tools and tests: `@NAME//:lib`.",
)
