"""Patch series: exact, headed, ordered. See docs/maintain.md for the way of a patch."""

load("//patches/private:overlay_info.bzl", _OverlayInfo = "OverlayInfo")
load("//patches/private:patch_overlay.bzl", "patch_overlay_rule")

OverlayInfo = _OverlayInfo

def patch_overlay(name, wheel, series = "series", patches = None, **kwargs):
    """Builds the overlay of one patch folder: the changed files and <name>.json; provides OverlayInfo.

    `moet patch` works on the patches; it reads here which wheel they are for.

    Args:
      name: target name.
      wheel: label of the pinned wheel, @pypi_<closure>_<project>//:file.
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
