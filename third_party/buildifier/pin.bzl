"""buildifier, the formatter and linter of BUILD and .bzl files, as its npm package brings it.

To bump: set version, and sha256 to that of the file which `npm pack @bazel/buildifier@VERSION` makes.
"""

BUILDIFIER = struct(
    package = "@bazel/buildifier",
    version = "8.2.1",
    sha256 = "b96ea9b13003036c801f52bee6f9b0314738f8432e5cb9d814c89f59292604ee",
)
