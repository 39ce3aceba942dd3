"""wheel_layer: pinned wheels, installed into one layer."""

load(":layer_info.bzl", "declare_layer", "layer_outputs", "layer_prefix", "layer_providers")

RecordsInfo = provider(
    doc = "What pip would know of a layer's wheels.",
    fields = {"records": "File: JSON, the text of each distribution's RECORD by its path in the image."},
)

def _wheel_layer_impl(ctx):
    layer = declare_layer(ctx)
    records = ctx.actions.declare_file(ctx.label.name + ".records.json")
    args = ctx.actions.args()
    args.use_param_file("@%s")
    args.set_param_file_format("multiline")
    args.add("--name=" + ctx.label.name)
    args.add("--comment=" + ctx.attr.comment)
    args.add("--mtime=%d" % ctx.attr.mtime)
    args.add("--out=" + layer_prefix(layer))
    for glob in ctx.attr.drop:
        args.add("--drop=" + glob)
    args.add_all(ctx.files.wheels)
    ctx.actions.run(
        outputs = layer_outputs(layer) + [records],
        inputs = ctx.files.wheels,
        executable = ctx.executable._writer,
        arguments = [args],
        mnemonic = "WheelLayer",
        progress_message = "Installing %d wheels into layer %s" % (len(ctx.files.wheels), ctx.label.name),
    )
    return layer_providers(ctx, layer) + [RecordsInfo(records = records)]

wheel_layer = rule(
    implementation = _wheel_layer_impl,
    attrs = {
        "comment": attr.string(doc = "What the layer holds, for the image's history."),
        "drop": attr.string_list(doc = "Globs over paths (no leading slash) that are not installed; each must match."),
        "mtime": attr.int(doc = "Modification time of every entry, in seconds since the epoch.", mandatory = True),
        "wheels": attr.label_list(doc = "The wheels.", allow_files = [".whl"], mandatory = True),
        "_writer": attr.label(default = "//images/oci:wheel_layer", executable = True, cfg = "exec"),
    },
    doc = """Installs wheels into one layer, as pip would: entry points, .data, RECORD and INSTALLER.

Deterministic; fails when two wheels install one path with different bytes.""",
)
