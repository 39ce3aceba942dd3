"""python_extension: C++ with pybind11 to one module that CPython 3.11 imports."""

_FLAGS = [
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    # A product and a sum are rounded as written, in every instruction set.
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
]

# A fixed environment: compilers look at more than they say.
_ENV = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "0"}

def _pybind11_include(files):
    """The folder below which pybind11's headers are, of the files of its wheel."""
    for file in files:
        if file.path.endswith("/include/pybind11/pybind11.h"):
            return file.path[:-len("/pybind11/pybind11.h")]
    fail("no file ends in include/pybind11/pybind11.h: expected pybind11's wheel")

def _python_extension_impl(ctx):
    gcc = ctx.file._gcc
    gxx = gcc.path + "/launch/g++"
    python = ctx.file._python_headers
    include = [
        python.path + "/usr/include/python3.11",
        python.path + "/usr/include",
        _pybind11_include(ctx.files._pybind11),
    ]
    names = {}
    for src in ctx.files.srcs:
        if src.basename in names:
            fail("%s: srcs: two files are named %s; expected a name of its own for each" % (ctx.label, src.basename))
        names[src.basename] = True
    for name in ctx.attr.flags:
        if name not in names:
            fail("%s: flags: %s is none of srcs (%s)" % (ctx.label, name, ", ".join(sorted(names))))
    compiled = []
    for src in ctx.files.srcs:
        flags = [flag for flag in ctx.attr.flags.get(src.basename, "").split(" ") if flag]
        obj = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all(_FLAGS)
        args.add_all(flags)
        args.add("-I.")
        for folder in include:
            args.add("-isystem", folder)
            args.add("-ffile-prefix-map=%s=include" % folder)
        args.add("-c", src)
        args.add("-o", obj)
        ctx.actions.run(
            outputs = [obj],
            inputs = [src, gcc, python] + ctx.files.hdrs + ctx.files._pybind11,
            executable = gxx,
            arguments = [args],
            env = _ENV,
            mnemonic = "ExtensionCxx",
            progress_message = "Compiling %s" % src.short_path,
        )
        compiled.append((len(flags), src.basename, obj))

    # Of an inline function that several sources compile, the linker keeps the first copy: every CPU must have its code.
    objects = [obj for _, _, obj in sorted(compiled)]
    library = ctx.actions.declare_file(ctx.label.name + ".so")
    args = ctx.actions.args()
    args.add("-shared")
    args.add_all(objects)
    args.add_all([
        "-lpthread",
        "-ldl",
        "-Wl,--build-id=none",
        "-Wl,-soname," + library.basename,
        "-Wl,-z,relro,-z,now",
        # Symbols of the objects alone; their files' names would be the sandbox's.
        "-Wl,--strip-debug",
    ])
    args.add("-o", library)
    ctx.actions.run(
        outputs = [library],
        inputs = objects + [gcc],
        executable = gxx,
        arguments = [args],
        env = _ENV,
        mnemonic = "ExtensionLink",
        progress_message = "Linking %s" % library.short_path,
    )
    return [DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library]))]

python_extension = rule(
    implementation = _python_extension_impl,
    attrs = {
        "flags": attr.string_dict(
            doc = "More flags for a source, separated by spaces, by its file name: an instruction set, for example.",
        ),
        "hdrs": attr.label_list(
            allow_files = [".h", ".inc", ".inl"],
            doc = "What the sources include, by its path from the root of the tree.",
        ),
        "srcs": attr.label_list(
            allow_files = [".cpp"],
            doc = "Sources with different file names; one has PYBIND11_MODULE(<name>, ...).",
            mandatory = True,
        ),
        "_gcc": attr.label(allow_single_file = True, cfg = "exec", default = "//third_party/gcc:gcc12"),
        "_pybind11": attr.label(default = "@pypi_tools_pybind11//:files"),
        "_python_headers": attr.label(allow_single_file = True, default = "//tools/native:python_headers"),
    },
    doc = """Compiles C++ sources to <name>.so, a module that is imported by its path from the root of the tree.

The compiler, CPython's headers and pybind11 are pinned; of the host, g++ takes what third_party/gcc says. The bytes
depend on nothing else. There is no -march: code for an instruction set that not every x86-64 has goes into a source of
its own, with `flags`, and is called only where the CPU has it. Objects are linked by their number of flags, the fewest
first: each instruction set should add to those before it, as then what is inline and shared runs on every CPU that calls
it. Python code names the target in `data`.""",
)
