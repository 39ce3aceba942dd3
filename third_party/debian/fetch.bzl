"""Repository rules for Debian packages, each pinned by name, version and SHA-256.

Where a package comes from is the business of the host's apt (its sources, mirrors, proxies, keys);
what it is is the business of the lock. Downloads go through Bazel's repository cache, so that a
second output base needs neither apt nor network.
"""

_REMAKE = "bazel run //third_party/debian:lock"

def _apt(ctx, program, *arguments):
    """Runs apt with the index that all deb_files share; its own may be off, which costs a second a call."""
    index = ctx.path(Label("@debian_apt_index//:index.bin"))
    return ctx.execute(
        [program, "-o", "APT::Sandbox::User=root", "-o", "Dir::Cache::pkgcache=%s" % index] + list(arguments),
        environment = {"LC_ALL": "C"},
        timeout = 600,
        working_directory = "apt",
    )

def _offered(ctx):
    """Returns the versions that apt offers now, as words."""
    rows = _apt(ctx, "apt-cache", "madison", ctx.attr.package).stdout.splitlines()
    versions = [row.split("|")[1].strip() for row in rows if row.count("|") == 2]
    return "offers " + ", ".join(versions) if versions else "offers no version of it"

def _deb_file_impl(ctx):
    pin = "%s=%s" % (ctx.attr.package, ctx.attr.version)
    if not ctx.download(url = [], output = ctx.attr.file, sha256 = ctx.attr.sha256, allow_fail = True).success:
        if not ctx.which("apt-get"):
            fail("%s: apt-get is not on PATH; expected Debian's apt to fetch it with" % pin)
        ctx.file("apt/.folder", executable = False)
        done = _apt(ctx, "apt-get", "--quiet", "download", pin)
        if done.return_code:
            said = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
            fail("%s is locked, but apt cannot fetch it (%s); apt %s. Run `apt-get update`; if it is gone, `%s`" %
                 (pin, "; ".join([line[3:] for line in said]), _offered(ctx), _REMAKE))
        fetched = [path for path in ctx.path("apt").readdir() if path.basename.endswith(".deb")][0]
        if not ctx.download(
            url = ["file://" + str(fetched).replace("%", "%25")],
            output = ctx.attr.file,
            sha256 = ctx.attr.sha256,
            allow_fail = True,
        ).success:
            got = ctx.execute(["sha256sum", fetched]).stdout.split(" ")[0]
            if got == ctx.attr.sha256:
                fail("%s: fetched, but it could not be copied from %s; is there space on the disk?" % (pin, fetched))
            fail("%s: apt fetched a file with SHA-256 %s, but %s is locked. If the archive changed it, look into why, then `%s`" %
                 (pin, got, ctx.attr.sha256, _REMAKE))
        ctx.delete("apt")
    ctx.file("BUILD.bazel", """package(default_visibility = ["//visibility:public"])

filegroup(
    name = "deb",
    srcs = ["{file}"],
)
""".format(file = ctx.attr.file), executable = False)

def _apt_index_impl(ctx):
    ctx.file("BUILD.bazel", "exports_files([\"index.bin\"])\n", executable = False)
    if ctx.which("apt-cache"):
        ctx.execute(["apt-cache", "-o", "Dir::Cache::pkgcache=%s" % ctx.path("index.bin"), "gencaches"], timeout = 600)
    if not ctx.path("index.bin").exists:
        ctx.file("index.bin", executable = False)

apt_index = repository_rule(
    implementation = _apt_index_impl,
    doc = """apt's index of the packages that the host knows, made once for all downloads.

A speed-up alone: apt checks it against its lists and makes it anew when it is stale or empty.""",
)

deb_file = repository_rule(
    implementation = _deb_file_impl,
    attrs = {
        "file": attr.string(doc = "File name to keep it under.", mandatory = True),
        "package": attr.string(doc = "Binary package name.", mandatory = True),
        "sha256": attr.string(doc = "SHA-256 of the file, in hex.", mandatory = True),
        "version": attr.string(doc = "Locked version, with its epoch.", mandatory = True),
    },
    doc = """One Debian package, as it is: `@NAME//:deb`.

A version that apt no longer offers, or a file with another hash, fails with one line that names
the package, what was locked, what is offered and the command that remakes the lock.""",
)
