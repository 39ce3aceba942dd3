"""kernel_layer: the families of kernels that a line's steps name, in one layer."""

load("//kernels:families.bzl", "FAMILIES")
load(":file_layer.bzl", "file_layer")
load(":mtime.bzl", "LAYER_MTIME")

# Folders of kernels/ that families share, each with a target `files`.
_SHARED = ["common", "dispatch", "extension", "selftest"]

def kernel_layer(name, steps, site):
    """Declares the layer of a line's kernels: a Python package, moet_kernels, laid out as kernels/ is.

    Fails on a step that names kernels which are no family.

    Args:
      name: the layer's name.
      steps: the line's, as step() returns them.
      site: the image's site folder, absolute.

    Returns:
      Labels: the layer's, or none where no step names a family.
    """
    families = {}
    for step in steps:
        for family in step.kernels:
            if family not in FAMILIES:
                fail("step %s names the kernels %s; expected one of kernels/families.bzl: %s" % (
                    step.name,
                    family,
                    ", ".join(FAMILIES),
                ))
            families[family] = True
    if not families:
        return []
    root = site[1:] + "/moet_kernels/"
    files = {"//kernels:package.py": root + "__init__.py"}
    for folder in _SHARED:
        files["//kernels/%s:files" % folder] = root + folder + "/"
    for family in families:
        files["//kernels/%s:%s.files" % (family, family)] = root + family + "/"
        files["//kernels/selftest:cases/%s.py" % family] = root + "selftest/cases/"
    file_layer(
        name = name,
        comment = "kernels " + ", ".join(sorted(families)),
        files = files,
        mtime = LAYER_MTIME,
    )
    return [":" + name]
