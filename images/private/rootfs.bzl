"""rootfs_layer: pinned Debian packages, unpacked into one layer."""

load(":layer_info.bzl", "declare_layer", "layer_outputs", "layer_prefix", "layer_providers")

def _rootfs_layer_impl(ctx):
    layer = declare_layer(ctx)
    args = ctx.actions.args()
    args.use_param_file("@%s")
    args.set_param_file_format("multiline")
    args.add("--name=" + ctx.label.name)
    args.add("--comment=" + ctx.attr.comment)
    args.add("--mtime=%d" % ctx.attr.mtime)
    args.add("--out=" + layer_prefix(layer))
    args.add("--policy=" + ctx.file.policy.path)
    args.add_all(ctx.files.debs)
    ctx.actions.run(
        outputs = layer_outputs(layer),
        inputs = ctx.files.debs + [ctx.file.policy],
        executable = ctx.executable._writer,
        arguments = [args],
        mnemonic = "RootfsLayer",
        progress_message = "Unpacking %d Debian packages into layer %s" % (len(ctx.files.debs), ctx.label.name),
    )
    return layer_providers(ctx, layer)

rootfs_layer = rule(
    implementation = _rootfs_layer_impl,
    attrs = {
        "comment": attr.string(doc = "What the layer holds, for the image's history."),
        "debs": attr.label_list(allow_files = [".deb"], doc = "The packages, in any order.", mandatory = True),
        "mtime": attr.int(doc = "Modification time of every entry, in seconds since the epoch.", mandatory = True),
        "policy": attr.label(
            allow_single_file = [".toml"],
            doc = "What to drop, link and create; images/oci/rootfs_policy.py describes the file.",
            mandatory = True,
        ),
        "_writer": attr.label(default = "//images/oci:rootfs", executable = True, cfg = "exec"),
    },
    doc = """Makes a root file system of Debian packages, without running their scripts.

Deterministic, whatever the order of the packages. Fails when two packages install one path with
different bytes, and when an entry of the policy matches nothing.""",
)
