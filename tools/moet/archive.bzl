"""python_archive: a Python program with all that it imports, as one file that any CPython runs."""

def _place(file, workspace, roots):
    """Returns where a file lies below the import root that it belongs to."""
    path = file.short_path
    path = path[len("../"):] if path.startswith("../") else workspace + "/" + path
    for root in roots:
        if path.startswith(root + "/"):
            return path[len(root) + 1:]
    return path[len(workspace) + 1:] if path.startswith(workspace + "/") else None

def _python_archive_impl(ctx):
    out = ctx.actions.declare_file(ctx.attr.out)
    roots = {}
    files = {}
    for target in ctx.attr.deps:
        for root in target[PyInfo].imports.to_list():
            roots[root] = True
        for file in target[PyInfo].transitive_sources.to_list() + target[DefaultInfo].default_runfiles.files.to_list():
            files[file.path] = file

    # The longest root first: one may lie in another.
    ordered = [root for _, root in sorted([(-len(root), root) for root in roots])]
    inputs = [ctx.file._main]
    args = ctx.actions.args()
    args.use_param_file("@%s", use_always = True)
    args.set_param_file_format("multiline")
    args.add("--out=" + out.path)
    args.add("--main=" + ctx.file._main.path)
    args.add("--entry=" + ctx.attr.entry)
    args.add("--name=" + ctx.attr.out)
    for name in ctx.attr.left_out:
        args.add("--left-out=" + name)
    for name in ctx.attr.pure:
        args.add("--pure=" + name)
    for file in [files[path] for path in sorted(files)]:
        place = _place(file, ctx.workspace_name, ordered)
        if place:
            args.add("--file=%s=%s" % (place, file.path))
            inputs.append(file)
    for file in ctx.files.wheels:
        args.add("--wheel=" + file.path)
        inputs.append(file)
    for target, place in ctx.attr.data.items():
        for file in target.files.to_list():
            args.add("--file=%s=%s" % (place or file.short_path, file.path))
            inputs.append(file)
    ctx.actions.run(
        outputs = [out],
        inputs = inputs,
        executable = ctx.executable._writer,
        arguments = [args],
        mnemonic = "PythonArchive",
        progress_message = "Packing %s" % ctx.attr.out,
    )
    return [DefaultInfo(
        executable = out,
        files = depset([out]),
        runfiles = ctx.runfiles([out]),
    )]

python_archive = rule(
    implementation = _python_archive_impl,
    attrs = {
        "left_out": attr.string_list(doc = "Top-level packages that are left out: they need compiled parts, or nothing needs them."),
        "data": attr.label_keyed_string_dict(allow_files = True, doc = "Further files, and their paths in the archive; an empty one is the file's own path."),
        "deps": attr.label_list(doc = "py_library targets; all that they depend on comes along.", mandatory = True, providers = [PyInfo]),
        "entry": attr.string(doc = "MODULE:FUNCTION; its result is the exit status.", mandatory = True),
        "out": attr.string(doc = "File name.", mandatory = True),
        "pure": attr.string_list(doc = "Top-level packages that also work without the compiled parts that they have."),
        "wheels": attr.label_list(
            allow_files = [".whl"],
            doc = "Wheels whose files are taken from the wheel, not from where it was unpacked, which the host may alter.",
        ),
        "_main": attr.label(allow_single_file = True, default = "//tools/moet:archive_main.py"),
        "_writer": attr.label(cfg = "exec", default = "//tools/moet:archive_writer", executable = True),
    },
    doc = """Packs Python sources and data into one zip file that begins with `#!/usr/bin/env python3`.

Deterministic, without compiled parts: a package that has some is named in `left_out` or
in `pure`, or the build fails. Data is found with importlib.resources.""",
    executable = True,
)
