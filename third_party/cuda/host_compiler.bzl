"""The C++ compiler of the host, which nvcc drives and which links the libraries."""

# What a change of the compiler shows in: the driver, the compiler proper, the assembler, the linker.
_PROGRAMS = ["cc1plus", "as", "ld"]

def _host_compiler_impl(ctx):
    path = "/usr/bin/g++"
    if not ctx.path(path).exists:
        path = ctx.which("g++")
    if not path:
        fail("g++ is not installed: expected /usr/bin/g++; run ./bazelw, or apt-get install g++")
    programs = [str(path)] + [
        ctx.execute([path, "-print-prog-name=" + name]).stdout.strip()
        for name in _PROGRAMS
    ]
    found = [str(ctx.which(p) or p) if "/" not in p else p for p in programs]
    sums = ctx.execute(["sha256sum"] + found)
    if sums.return_code:
        fail("%s: its parts cannot be read: %s" % (path, sums.stderr.strip()))
    version = ctx.execute([path, "--version"]).stdout.split("\n")[0]
    ctx.file("identity.txt", "%s\n%s" % (version, sums.stdout), executable = False)
    ctx.file("compiler.bzl", "HOST_COMPILER = %r\n" % str(path), executable = False)
    ctx.file("BUILD.bazel", "exports_files([\"identity.txt\"])\n", executable = False)

host_compiler = repository_rule(
    implementation = _host_compiler_impl,
    doc = """Finds g++ on the host: its path (`@NAME//:compiler.bzl`) and `@NAME//:identity.txt`.

The identity has the version, and the SHA-256 of the compiler, assembler and linker. It is an input of every action
that runs them, so that another compiler rebuilds what it made.""",
    environ = ["PATH"],
    local = True,
)
