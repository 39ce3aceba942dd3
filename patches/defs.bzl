"""Patch series: exact, headed, ordered. See docs/maintain.md for the way of a patch."""

load("@rules_python//python:py_binary.bzl", "py_binary")
load("//patches/private:overlay_info.bzl", _OverlayInfo = "OverlayInfo")
load("//patches/private:patch_overlay.bzl", "patch_overlay_rule")

OverlayInfo = _OverlayInfo

def patch_overlay(name, wheel, series = "series", patches = None, **kwargs):
    """Builds the overlay of one patch folder, and the command that works on its patches.

    Targets:
      <name>: folder of changed files and <name>.json; provides OverlayInfo.
      <name>.tool: `bazel run //patches/vllm-0.33.0:overlay.tool -- check`, `-- edit NAME [FILE...] --to DIR`,
        `-- refresh NAME --from DIR`; paths are relative to where it is run.

    Args:
      name: target name.
      wheel: label of the pinned wheel.
      series: the order file.
      patches: the folder's patches; default: all that lie there, so that an unlisted one is noticed.
      **kwargs: passed to the overlay rule (visibility, tags, ...).
    """
    patch_overlay_rule(
        name = name,
        patches = native.glob(["*.patch"]) if patches == None else patches,
        series = series,
        wheel = wheel,
        **kwargs
    )
    py_binary(
        name = name + ".tool",
        srcs = ["//patches/engine:cli.py"],
        args = [
            "--wheel",
            "$(rootpath %s)" % wheel,
            "--series-dir",
            "$(rootpath %s)" % series,
        ],
        data = [wheel, series],
        main = "//patches/engine:cli.py",
        python_version = "PY3",
        tags = ["manual"],
        deps = ["//patches/engine"],
    )
