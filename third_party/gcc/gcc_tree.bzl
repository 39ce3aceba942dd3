"""deb_tree: a folder of what is wanted of Debian packages; gcc_tree: one of g++ and all that it runs on, for any place."""

def _unpacked(ctx, extra = []):
    tree = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add_all(ctx.files.debs, before_each = "--deb")
    args.add_all(ctx.attr.include, before_each = "--include")
    args.add_all(ctx.attr.exclude, before_each = "--exclude")
    args.add_all(extra)
    args.add(tree.path)
    ctx.actions.run(
        outputs = [tree],
        inputs = ctx.files.debs,
        executable = ctx.executable._tree,
        arguments = [args],
        mnemonic = "DebTree",
        progress_message = "Unpacking %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

def _deb_tree_impl(ctx):
    return _unpacked(ctx)

def _gcc_tree_impl(ctx):
    extra = ["--driver", ctx.attr.driver]
    for name, program in ctx.attr.programs.items():
        extra += ["--program", "%s=%s" % (name, program)]
    return _unpacked(ctx, extra)

_ATTRS = {
    "debs": attr.label_list(allow_files = [".deb"], doc = "The packages.", mandatory = True),
    "exclude": attr.string_list(doc = "Prefixes of paths that are left out again."),
    "include": attr.string_list(doc = "Prefixes of the paths that are wanted.", mandatory = True),
    "_tree": attr.label(cfg = "exec", default = "//third_party/gcc:tree", executable = True),
}

deb_tree = rule(
    implementation = _deb_tree_impl,
    attrs = _ATTRS,
    doc = """Unpacks what is wanted of Debian packages into one folder, without links: headers, for example.

Two packages that bring one path with different bytes fail the build, and so do a prefix that nothing begins with and a
wanted link that leads nowhere.""",
)

gcc_tree = rule(
    implementation = _gcc_tree_impl,
    attrs = dict(
        _ATTRS,
        driver = attr.string(doc = "Path of g++ in the packages.", mandatory = True),
        programs = attr.string_dict(
            doc = "Path of each program that g++ runs, by the name that it looks for.",
            mandatory = True,
        ),
    ),
    doc = """Unpacks a compiler into one folder; `launch/g++` in it compiles and links.

It takes programs, loader, libraries, headers and start files from the folder, whatever the host has: of the host it
needs the kernel, /bin/sh and readlink. No path of the folder gets into what it writes.

Two packages that bring one path with different bytes fail the build, and so do a prefix that nothing begins with, a
wanted link that leads nowhere and a program that is not in the folder.""",
)
