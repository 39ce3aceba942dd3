"""file_layer: single files and links in one layer."""

load(":layer_info.bzl", "declare_layer", "layer_outputs", "layer_prefix", "layer_providers")

def _file_layer_impl(ctx):
    layer = declare_layer(ctx)
    args = ctx.actions.args()
    args.add("--name=" + ctx.label.name)
    args.add("--comment=" + ctx.attr.comment)
    args.add("--mtime=%d" % ctx.attr.mtime)
    args.add("--out=" + layer_prefix(layer))
    inputs = []
    for flag, files in [("file", ctx.attr.files), ("executable", ctx.attr.executables)]:
        for target, dest in files.items():
            sources = target.files.to_list()
            if len(sources) != 1 and not dest.endswith("/"):
                fail("%s: %s is %d files; give a destination that ends in /" % (ctx.label, target.label, len(sources)))
            for source in sources:
                args.add("--%s=%s=%s" % (flag, dest + source.basename if dest.endswith("/") else dest, source.path))
            inputs += sources
    for path, target in ctx.attr.links.items():
        args.add("--link=%s=%s" % (path, target))
    ctx.actions.run(
        outputs = layer_outputs(layer),
        inputs = inputs,
        executable = ctx.executable._writer,
        arguments = [args],
        mnemonic = "FileLayer",
        progress_message = "Writing layer %s" % ctx.label.name,
    )
    return layer_providers(ctx, layer)

file_layer = rule(
    implementation = _file_layer_impl,
    attrs = {
        "comment": attr.string(doc = "What the layer holds, for the image's history."),
        "executables": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Like files, with mode 0755.",
        ),
        "files": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "File to path in the image (no leading slash), mode 0644; a path that ends in / keeps the file's name.",
        ),
        "links": attr.string_dict(doc = "Path in the image (no leading slash) to the target of a symbolic link."),
        "mtime": attr.int(doc = "Modification time of every entry, in seconds since the epoch.", mandatory = True),
        "_writer": attr.label(default = "//images/oci:file_layer", executable = True, cfg = "exec"),
    },
    doc = "Writes files and links, owned by root, into one deterministic layer.",
)
