"""LayerInfo: what a layer rule hands to the image."""

LayerInfo = provider(
    doc = "One image layer.",
    fields = {
        "blob": "File: the gzip-compressed tar.",
        "descriptor": "File: JSON with name, comment, mediaType, digest, size and diff_id.",
        "listing": "File: JSON rows [path, type, mode, size, content, owner] of every entry.",
    },
)

def declare_layer(ctx):
    """Declares a layer rule's three outputs beside each other.

    Args:
      ctx: the rule's context.

    Returns:
      LayerInfo whose files end in .tar.gz, .json and .files.json; the writers of images/oci take
      the path without these endings.
    """
    return LayerInfo(
        blob = ctx.actions.declare_file(ctx.label.name + ".tar.gz"),
        descriptor = ctx.actions.declare_file(ctx.label.name + ".json"),
        listing = ctx.actions.declare_file(ctx.label.name + ".files.json"),
    )

def layer_outputs(layer):
    """Returns the files of a LayerInfo, as a list."""
    return [layer.blob, layer.descriptor, layer.listing]

def layer_providers(ctx, layer):
    """Returns what a layer rule returns: the blob by default, all three in the group `layer`."""
    return [
        layer,
        DefaultInfo(files = depset([layer.blob]), runfiles = ctx.runfiles([layer.blob])),
        OutputGroupInfo(layer = depset(layer_outputs(layer))),
    ]

def layer_prefix(layer):
    """Returns the path that the writers of images/oci take as --out."""
    return layer.blob.path[:-len(".tar.gz")]
