"""The rule repositories that BUILD files load from, for every Bazel that Moet supports.

Debian 12's Bazel 4 ships no rule repositories, so stand-ins re-export the native rules.
Debian's Bazel 7 packages the real ones under /usr/share/bazel, and its default toolchains load from them.
"""

_STAND_INS = ["rules_cc", "rules_java", "rules_python"]

_DEBIAN_BAZEL_7 = {
    "bazel_features": "/usr/share/bazel/tools/features",
    "bazel_skylib": "/usr/share/bazel/tools/skylib",
    "platforms": "/usr/share/bazel/tools/platforms",
    "rules_cc": "/usr/share/bazel/rules/cc",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_license": "/usr/share/bazel/rules/license",
    "rules_proto": "/usr/share/bazel/rules/proto",
    "rules_python": "/usr/share/bazel/rules/python",
}

def bazel_compat_repositories():
    """Declares rules_cc, rules_java, rules_python and remote_coverage_tools.

    Takes the repositories that Debian packages beside its Bazel 7, and this folder's stand-ins for Bazel 4.
    """

    # Debian's builds leave native.bazel_version empty, so an addition of Bazel 6 tells them apart.
    if hasattr(native, "package_relative_label"):
        for name, path in _DEBIAN_BAZEL_7.items():
            native.local_repository(name = name, path = path)
    else:
        for name in _STAND_INS:
            native.local_repository(name = name, path = "third_party/bazel_compat/" + name)

    # Every test rule wants this repository, also where coverage is never run.
    native.local_repository(
        name = "remote_coverage_tools",
        path = "third_party/bazel_compat/remote_coverage_tools",
    )
