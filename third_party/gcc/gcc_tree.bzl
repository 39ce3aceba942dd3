"""gcc_tree: g++ and all that it runs on, of Debian packages, in one folder that can lie anywhere."""

def _gcc_tree_impl(ctx):
    tree = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add_all(ctx.files.debs, before_each = "--deb")
    args.add_all(ctx.attr.include, before_each = "--include")
    args.add_all(ctx.attr.exclude, before_each = "--exclude")
    args.add("--driver", ctx.attr.driver)
    args.add_all(["%s=%s" % pair for pair in ctx.attr.programs.items()], before_each = "--program")
    args.add(tree.path)
    ctx.actions.run(
        outputs = [tree],
        inputs = ctx.files.debs,
        executable = ctx.executable._tree,
        arguments = [args],
        mnemonic = "GccTree",
        progress_message = "Unpacking %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

gcc_tree = rule(
    implementation = _gcc_tree_impl,
    attrs = {
        "debs": attr.label_list(allow_files = [".deb"], doc = "The packages.", mandatory = True),
        "driver": attr.string(doc = "Path of g++ in the packages.", mandatory = True),
        "exclude": attr.string_list(doc = "Prefixes of paths that are left out again."),
        "include": attr.string_list(doc = "Prefixes of the paths that are wanted.", mandatory = True),
        "programs": attr.string_dict(
            doc = "Path of each program that g++ runs, by the name that it looks for.",
            mandatory = True,
        ),
        "_tree": attr.label(cfg = "exec", default = "//third_party/gcc:tree", executable = True),
    },
    doc = """Unpacks a compiler into one folder; `launch/g++` in it compiles and links.

It takes programs, loader, libraries, headers and start files from the folder, whatever the host has: of the host it
needs the kernel, /bin/sh and readlink. No path of the folder gets into what it writes.

Two packages that bring one path with different bytes fail the build, and so do a prefix that nothing begins with, a
wanted link that leads nowhere and a program that is not in the folder.""",
)
