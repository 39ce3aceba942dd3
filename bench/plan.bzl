"""bench_plan: what a benchmark of one image needs to know, taken from the image's own targets."""

_WheelLayersInfo = provider(
    doc = "The wheel layers of an image.",
    fields = {
        "layers": "depset of struct(name, comment, mtime, drop, wheels): the arguments of each wheel_layer.",
        "wheels": "depset of Files.",
    },
)

def _wheel_layers_impl(_target, ctx):
    below = [layer[_WheelLayersInfo] for layer in getattr(ctx.rule.attr, "layers", []) if _WheelLayersInfo in layer]
    layers, wheels = [], []
    if ctx.rule.kind == "wheel_layer":
        wheels = ctx.rule.files.wheels
        layers = [struct(
            comment = ctx.rule.attr.comment,
            drop = tuple(ctx.rule.attr.drop),
            mtime = ctx.rule.attr.mtime,
            name = ctx.label.name,
            wheels = tuple([wheel.short_path for wheel in wheels]),
        )]
    return [_WheelLayersInfo(
        layers = depset(layers, transitive = [info.layers for info in below], order = "postorder"),
        wheels = depset(wheels, transitive = [info.wheels for info in below]),
    )]

_wheel_layers = aspect(
    implementation = _wheel_layers_impl,
    attr_aspects = ["layers"],
    doc = "Collects the arguments of an image's wheel_layers, in the image's order.",
)

def _bench_plan_impl(ctx):
    plan = ctx.actions.declare_file(ctx.label.name + ".json")
    info = ctx.attr.image[_WheelLayersInfo]
    tools = {"assemble": ctx.attr._assemble, "wheel_layer": ctx.attr._wheel_layer}
    ctx.actions.write(plan, json.encode_indent(struct(
        image = ctx.attr.target,
        layers = info.layers.to_list(),
        layout = ctx.file.image.short_path,
        loader = ctx.attr.loader,
        patches = ctx.attr.patches,
        tools = {name: tool[DefaultInfo].files_to_run.executable.short_path for name, tool in tools.items()},
    )) + "\n")
    runfiles = ctx.runfiles([plan], transitive_files = info.wheels)
    for tool in tools.values():
        runfiles = runfiles.merge(tool[DefaultInfo].default_runfiles)
    return [DefaultInfo(files = depset([plan]), runfiles = runfiles)]

bench_plan = rule(
    implementation = _bench_plan_impl,
    attrs = {
        "image": attr.label(allow_single_file = True, aspects = [_wheel_layers], doc = "The oci_image.", mandatory = True),
        "loader": attr.string(doc = "Label of the image's load command.", mandatory = True),
        "patches": attr.string(doc = "Folder of the image's patch series, from the workspace's root.", mandatory = True),
        "target": attr.string(doc = "Label by which people build the image.", mandatory = True),
        "_assemble": attr.label(default = "//images/oci:assemble", cfg = "target", executable = True),
        "_wheel_layer": attr.label(default = "//images/oci:wheel_layer", cfg = "target", executable = True),
    },
    doc = """Writes JSON: the image's wheel layers with their arguments, the programs that write them, labels.

The wheels and the programs come along as runfiles; paths are runfiles paths. Nothing of the image is built.""",
)
