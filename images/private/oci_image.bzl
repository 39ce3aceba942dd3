"""oci_image: layers and a configuration to an OCI image layout."""

load(":layer_info.bzl", "LayerInfo", "layer_outputs", "layer_prefix")

ImageInfo = provider(
    doc = "A built image.",
    fields = {
        "digest": "File: the manifest's digest, sha256:<hex>, in one line.",
        "layout": "File: folder, an OCI image layout with one manifest.",
        "reference": "string: NAME:TAG that the layout's index gives the manifest.",
    },
)

def _oci_image_impl(ctx):
    layout = ctx.actions.declare_directory(ctx.label.name)
    digest = ctx.actions.declare_file(ctx.label.name + ".digest")
    spec = ctx.actions.declare_file(ctx.label.name + ".spec.json")
    ctx.actions.write(spec, json.encode(struct(
        cmd = ctx.attr.cmd,
        entrypoint = ctx.attr.entrypoint,
        env = ctx.attr.env,
        reference = ctx.attr.reference,
        replaces = ctx.attr.replaces,
        user = ctx.attr.user,
        workdir = ctx.attr.workdir,
    )))
    layers = [target[LayerInfo] for target in ctx.attr.layers]
    args = ctx.actions.args()
    args.add("--spec=" + spec.path)
    args.add("--out=" + layout.path)
    args.add("--digest=" + digest.path)
    args.add("--labels=" + ctx.file.labels.path)
    inputs = [spec, ctx.file.labels]
    for env_file in ctx.files.env_files:
        args.add("--env-file=" + env_file.path)
        inputs.append(env_file)
    for layer in layers:
        args.add("--layer=" + layer_prefix(layer))
        inputs += layer_outputs(layer)
    ctx.actions.run(
        outputs = [layout, digest],
        inputs = inputs,
        executable = ctx.executable._assemble,
        arguments = [args],
        # Blobs are linked into the layout; a sandbox would make that a copy of gigabytes.
        execution_requirements = {"local": "1", "no-cache": "1", "no-sandbox": "1"},
        mnemonic = "OciImage",
        progress_message = "Assembling image %s" % ctx.attr.reference,
    )
    return [
        ImageInfo(digest = digest, layout = layout, reference = ctx.attr.reference),
        DefaultInfo(files = depset([layout]), runfiles = ctx.runfiles([layout])),
        OutputGroupInfo(digest = depset([digest])),
    ]

oci_image = rule(
    implementation = _oci_image_impl,
    attrs = {
        "cmd": attr.string_list(doc = "Default arguments of the entry point."),
        "entrypoint": attr.string_list(doc = "Program that the container runs."),
        "env": attr.string_dict(doc = "Environment of every process."),
        "env_files": attr.label_list(allow_files = [".json"], doc = "JSON objects with further environment, known only in the build."),
        "labels": attr.label(
            allow_single_file = [".json"],
            doc = "JSON object of labels; org.opencontainers.image.created is the time that the image states.",
            mandatory = True,
        ),
        "layers": attr.label_list(doc = "Layers, lowest first; at most 24.", mandatory = True, providers = [LayerInfo]),
        "reference": attr.string(doc = "NAME:TAG.", mandatory = True),
        "replaces": attr.string_dict(doc = "Layer name to the owner (project-version) whose files it may replace."),
        "user": attr.string(doc = "User that the container runs as, UID:GID."),
        "workdir": attr.string(default = "/", doc = "Working directory of the container."),
        "_assemble": attr.label(default = "//images/oci:assemble", executable = True, cfg = "exec"),
    },
    doc = """Assembles an OCI image layout, a folder named like the target.

Deterministic. Fails when two packages install one path with different bytes, unless `replaces` says so.""",
)
