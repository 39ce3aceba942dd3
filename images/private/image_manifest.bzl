"""image_manifest: what an image says of itself, and the labels and environment that follow."""

load("//patches:defs.bzl", "OverlayInfo")
load(":layer_info.bzl", "LayerInfo")

ManifestInfo = provider(
    doc = "An image's manifest (images/manifest/schema.json) and what is derived from it.",
    fields = {
        "env": "File: JSON object of environment: the manifest's SHA-256, which the entry point checks.",
        "labels": "File: JSON object of OCI labels.",
        "manifest": "File: manifest.json.",
    },
)

def _image_manifest_impl(ctx):
    made = ManifestInfo(
        env = ctx.actions.declare_file(ctx.label.name + ".env.json"),
        labels = ctx.actions.declare_file(ctx.label.name + ".labels.json"),
        manifest = ctx.actions.declare_file(ctx.label.name + ".json"),
    )
    line = ctx.actions.declare_file(ctx.label.name + ".line.json")
    pins = ctx.actions.declare_file(ctx.label.name + ".pins.json")
    ctx.actions.write(line, ctx.attr.line)
    ctx.actions.write(pins, ctx.attr.pins)
    args = ctx.actions.args()
    args.add("--line", line)
    args.add("--pins", pins)
    args.add("--site", ctx.attr.site)
    args.add("--manifest", made.manifest)
    args.add("--labels", made.labels)
    args.add("--env", made.env)
    inputs = [line, pins]
    if ctx.attr.release:
        # Bazel's stable status: what tools/release/workspace_status printed.
        args.add("--status", ctx.info_file)
        inputs.append(ctx.info_file)
    for target in ctx.attr.overlays:
        overlay = target[OverlayInfo]
        args.add_all("--overlay", [overlay.manifest.path, overlay.tree.path])
        inputs += [overlay.manifest, overlay.tree]
    for target, kind in ctx.attr.layers.items():
        args.add_all("--layer", [kind, target[LayerInfo].listing])
        inputs.append(target[LayerInfo].listing)
    outputs = [made.manifest, made.labels, made.env]
    ctx.actions.run(
        outputs = outputs,
        inputs = inputs,
        executable = ctx.executable._builder,
        arguments = [args],
        mnemonic = "ImageManifest",
        progress_message = "Writing the manifest of %s" % ctx.label,
    )
    return [
        made,
        DefaultInfo(files = depset([made.manifest]), runfiles = ctx.runfiles([made.manifest])),
        OutputGroupInfo(env = depset([made.env]), labels = depset([made.labels])),
    ]

image_manifest = rule(
    implementation = _image_manifest_impl,
    attrs = {
        "layers": attr.label_keyed_string_dict(
            doc = "Layers whose files are attested, and their kind: overlay, kernel or runtime.",
            providers = [LayerInfo],
        ),
        "line": attr.string(doc = "JSON: line, tag, base, steps, labels and created.", mandatory = True),
        "overlays": attr.label_list(doc = "The patch overlays.", providers = [OverlayInfo]),
        "pins": attr.string(doc = "JSON list of pins.", mandatory = True),
        "release": attr.bool(doc = "The image is the release of the commit that --config=release states."),
        "site": attr.string(doc = "The image's site folder, absolute.", mandatory = True),
        "_builder": attr.label(default = "//images/manifest:cli", executable = True, cfg = "exec"),
    },
    doc = """Writes an image's manifest, and the labels and environment that go with it.

Fails, with a line a problem, on steps, switches and patches that do not fit together, and on tags
and labels that OCI forbids.""",
)
