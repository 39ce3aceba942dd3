"""wheel_tree: parts of pinned wheels in one folder."""

def _wheel_tree_impl(ctx):
    tree = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add_all(ctx.files.wheels, before_each = "--wheel")
    args.add_all(ctx.attr.include, before_each = "--include")
    args.add_all(ctx.attr.exclude, before_each = "--exclude")
    args.add(tree.path)
    ctx.actions.run(
        outputs = [tree],
        inputs = ctx.files.wheels,
        executable = ctx.executable._unpack,
        arguments = [args],
        mnemonic = "WheelTree",
        progress_message = "Unpacking %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

wheel_tree = rule(
    implementation = _wheel_tree_impl,
    attrs = {
        "exclude": attr.string_list(doc = "Prefixes of members that are left out again."),
        "include": attr.string_list(doc = "Prefixes of the members that are wanted.", mandatory = True),
        "wheels": attr.label_list(allow_files = [".whl"], mandatory = True),
        "_unpack": attr.label(cfg = "exec", default = "//third_party/cuda:unpack", executable = True),
    },
    doc = """Unpacks the wanted members of wheels into one folder.

Two wheels that bring one path with different bytes fail the build, and so does a prefix that nothing begins with.""",
)
