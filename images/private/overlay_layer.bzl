"""overlay_layer: the files that a patch series changes, in one layer."""

load("//patches:defs.bzl", "OverlayInfo")
load(":layer_info.bzl", "declare_layer", "layer_outputs", "layer_prefix", "layer_providers")
load(":wheel_layer.bzl", "RecordsInfo")

def _overlay_layer_impl(ctx):
    layer = declare_layer(ctx)
    overlay = ctx.attr.overlay[OverlayInfo]
    records = ctx.attr.base[RecordsInfo].records
    args = ctx.actions.args()
    args.add("--name=" + ctx.label.name)
    args.add("--comment=" + ctx.attr.comment)
    args.add("--mtime=%d" % ctx.attr.mtime)
    args.add("--out=" + layer_prefix(layer))
    args.add("--overlay=" + overlay.tree.path)
    args.add("--manifest=" + overlay.manifest.path)
    args.add("--records=" + records.path)
    ctx.actions.run(
        outputs = layer_outputs(layer),
        inputs = [overlay.tree, overlay.manifest, records],
        executable = ctx.executable._writer,
        arguments = [args],
        mnemonic = "OverlayLayer",
        progress_message = "Writing the overlay of %s %s" % (overlay.project, overlay.version),
    )
    return layer_providers(ctx, layer)

overlay_layer = rule(
    implementation = _overlay_layer_impl,
    attrs = {
        "base": attr.label(doc = "The wheel_layer that holds the patched distribution.", mandatory = True, providers = [RecordsInfo]),
        "comment": attr.string(doc = "What the layer holds, for the image's history."),
        "mtime": attr.int(doc = "Modification time of every entry, in seconds since the epoch.", mandatory = True),
        "overlay": attr.label(doc = "The patch_overlay.", mandatory = True, providers = [OverlayInfo]),
        "_writer": attr.label(default = "//images/oci:overlay_layer", executable = True, cfg = "exec"),
    },
    doc = """Puts an overlay's files over the distribution that it patches, and brings its RECORD up to date.

Fails when a file is not what the overlay's manifest says.""",
)
