"""The rule behind patch_overlay()."""

load(":overlay_info.bzl", "OverlayInfo")

def _impl(ctx):
    series = ctx.file.series
    for patch in ctx.files.patches:
        if patch.dirname != series.dirname:
            fail("%s: %s lies outside the series' folder %s: move it there" % (ctx.label, patch.path, series.dirname))
    project, _, version = ctx.label.package.split("/")[-1].rpartition("-")
    if not project:
        fail("%s: a series lives in a folder named <project>-<version>" % ctx.label)

    tree = ctx.actions.declare_directory(ctx.label.name)
    manifest = ctx.actions.declare_file(ctx.label.name + ".json")
    args = ctx.actions.args()
    args.add("--wheel", ctx.file.wheel)
    args.add("--series-dir", series.dirname)
    args.add("--out", tree.path)
    args.add("--manifest", manifest)
    ctx.actions.run(
        executable = ctx.executable._engine,
        arguments = [args],
        inputs = [ctx.file.wheel, series] + ctx.files.patches,
        outputs = [tree, manifest],
        mnemonic = "PatchOverlay",
        progress_message = "Patching %s %s" % (project, version),
    )
    return [
        DefaultInfo(files = depset([tree, manifest]), runfiles = ctx.runfiles([tree, manifest])),
        OutputGroupInfo(manifest = depset([manifest]), tree = depset([tree])),
        OverlayInfo(manifest = manifest, project = project, tree = tree, version = version),
    ]

patch_overlay_rule = rule(
    implementation = _impl,
    doc = """Applies a patch series to one wheel and keeps only what changed.

The build fails, with every failing patch in one report, unless each patch applies exactly.
Outputs: the folder <name> and the manifest <name>.json; provides OverlayInfo.""",
    attrs = {
        "patches": attr.label_list(
            allow_files = [".patch"],
            doc = "Every patch in the folder, listed or not: an unlisted one fails the build.",
            mandatory = True,
        ),
        "series": attr.label(
            allow_single_file = True,
            doc = "The order file: one patch a line, '#' begins a comment.",
            mandatory = True,
        ),
        "wheel": attr.label(
            allow_single_file = [".whl"],
            doc = "The pinned wheel that the series is for.",
            mandatory = True,
        ),
        "_engine": attr.label(
            cfg = "exec",
            default = "//patches/engine:cli",
            executable = True,
        ),
    },
)
