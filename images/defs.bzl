"""The façade for image lines: one macro makes an image, its manifest and the commands on it."""

load("@rules_python//python:py_binary.bzl", "py_binary")
load("//images/private:file_layer.bzl", "file_layer")
load("//images/private:image_manifest.bzl", "image_manifest")
load("//images/private:kernel_layer.bzl", "kernel_layer")
load("//images/private:mtime.bzl", "LAYER_MTIME")
load("//images/private:oci_image.bzl", _oci_image = "oci_image")
load("//images/private:overlay_layer.bzl", "overlay_layer")
load("//images/private:pins.bzl", "line_pins")
load("//images/private:wheel_layers.bzl", "wheel_layers")
load("//serving/runtime:files.bzl", "RUNTIME_ENTRYPOINT", "RUNTIME_EXECUTABLES", "RUNTIME_FILES")
load("//tests/engine:image_tests.bzl", "image_tests")

oci_image = _oci_image

_SITE = "/usr/local/lib/python3.11/dist-packages"

def serving_image(name, line, rootfs, overlay, step_tests, sdist):
    """Makes everything that one line of images consists of.

    Targets:
      <name>: the image, an OCI layout (folder).
      <name>.base: the same without steps: the pinned upstream, as release r0.
      <group of the line>: one layer of wheels.
      links, runtime, overlay_layer: the other layers.
      moet_kernels: the layer of the kernels that steps name, if any does.
      manifest: the image's manifest.json; with the output groups labels and env.
      load, push: `bazel run` commands; load.base likewise.
      layout_test, engine_test, podman_test: see //tests/engine:image_tests.bzl.

    Args:
      name: target name of the image.
      line: the line's data, see //images:line.bzl.
      rootfs: label of the root file system's layer.
      overlay: label of the patch_overlay.
      step_tests: label of the steps' tests, which run inside the image.
      sdist: label of upstream's sdist, for its own tests.
    """
    groups = wheel_layers(line)
    file_layer(
        name = "links",
        comment = "where run-time compilation looks for the CUDA toolkit",
        links = line.links,
        mtime = LAYER_MTIME,
    )
    file_layer(
        name = "runtime",
        comment = "attestation and entry point",
        executables = RUNTIME_EXECUTABLES,
        files = RUNTIME_FILES,
        mtime = LAYER_MTIME,
    )
    kernels = kernel_layer(
        name = "moet_kernels",
        site = _SITE,
        steps = line.steps,
    )
    overlay_layer(
        name = "overlay_layer",
        base = ":" + line.base.name,
        comment = "steps " + ", ".join([str(step.number) for step in line.steps]),
        mtime = LAYER_MTIME,
        overlay = overlay,
    )
    below = [rootfs] + groups + [":links", ":runtime"]
    _image(
        name = name,
        line = line,
        attested = dict({layer: "kernel" for layer in kernels}, **{":overlay_layer": "overlay", ":runtime": "runtime"}),
        # Patches change more often than kernels, and an engine reloads from the first layer that differs.
        layers = below + kernels + [":overlay_layer"],
        manifest = "manifest",
        overlays = [overlay],
        tag = line.tag,
        steps = line.steps,
    )
    _image(
        name = name + ".base",
        line = line,
        attested = {":runtime": "runtime"},
        layers = below,
        manifest = "manifest.base",
        overlays = [],
        tag = line.base_tag,
        steps = [],
    )
    _command("load", name, line.tag)
    _command("load", name + ".base", line.base_tag, suffix = ".base")
    _command("push", name, line.tag)
    image_tests(
        base = ":%s.base" % name,
        image = ":" + name,
        sdist = sdist,
        step_tests = step_tests,
    )

def _by_release(tag):
    """What a tag is in a release, and in any other build."""
    return {"//images:release": tag, "//conditions:default": tag + "-dev"}

def _line_json(line, steps, tag):
    return json.encode(struct(
        base = struct(name = line.base.name, version = line.base.version, commit = line.base.commit),
        created = line.base.released,
        labels = {
            "org.opencontainers.image.description": line.description,
            "org.opencontainers.image.title": line.title,
        },
        line = line.name,
        steps = steps,
        tag = tag,
    ))

def _image(name, line, tag, steps, overlays, layers, attested, manifest):
    image_manifest(
        name = manifest,
        layers = attested,
        line = select({case: _line_json(line, steps, named) for case, named in _by_release(tag).items()}),
        overlays = overlays,
        pins = json.encode(line_pins(line)),
        release = select({"//images:release": True, "//conditions:default": False}),
        site = _SITE,
    )
    native.filegroup(
        name = manifest + ".labels",
        srcs = [":" + manifest],
        output_group = "labels",
    )
    native.filegroup(
        name = manifest + ".env",
        srcs = [":" + manifest],
        output_group = "env",
    )
    file_layer(
        name = manifest + ".layer",
        comment = "the image's manifest",
        files = {":" + manifest: "usr/share/moet/manifest.json"},
        mtime = LAYER_MTIME,
    )
    _oci_image(
        name = name,
        entrypoint = RUNTIME_ENTRYPOINT,
        env = line.env,
        env_files = [":%s.env" % manifest],
        labels = ":%s.labels" % manifest,
        layers = layers + [":%s.layer" % manifest],
        reference = select(_by_release(tag)),
        replaces = {"overlay_layer": "%s-%s" % (line.base.name, line.base.version)},
        user = "1000:1000",
        workdir = line.env["HOME"],
    )

def _command(verb, image, tag, suffix = ""):
    py_binary(
        name = verb + suffix,
        srcs = ["//images/engine:%s.py" % verb],
        args = [
            "--layout",
            "$(rootpath :%s)" % image,
            "--ref",
        ] + select({case: [named] for case, named in _by_release(tag).items()}),
        data = [":" + image],
        main = "//images/engine:%s.py" % verb,
        python_version = "PY3",
        deps = ["//images/engine:programs"],
    )
