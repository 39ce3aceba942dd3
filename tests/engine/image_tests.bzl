"""image_tests: a line's image, looked at as a layout and run in real engines."""

load("//tools/python:pytest.bzl", "pytest_test")

# An engine of a test's own wants root's namespaces and cgroups, which the sandbox hides; and each takes the disk
# of a whole image, so one runs at a time.
_ENGINE_TAGS = [
    "exclusive",
    "local",
]

def image_tests(image, base, step_tests, sdist, name = ""):
    """Makes the tests of one image.

    Targets:
      layout_test: OCI's schemas, every digest, size and diff_id, the number of layers.
      engine_test: in a dockerd of its own: attestation, run-time compilers, package records, certificates, the
        steps' tests with and without their patches, vLLM's own tests, hardened runs, labels, and the arguments
        that the line's profile passes, by vLLM's own parser.
      podman_test: podman loads the image and runs it.

    Args:
      image: label of the image's layout.
      base: label of the layout of the same image without steps.
      step_tests: label of the steps' test files.
      sdist: label of upstream's sdist, for its tests.
      name: put before the targets' names, with a dot.
    """
    prefix = name + "." if name else ""
    layouts = {
        "MOET_BASE_LAYOUT": "$(rootpath %s)" % base,
        "MOET_IMAGE_LAYOUT": "$(rootpath %s)" % image,
    }
    pytest_test(
        name = prefix + "layout_test",
        size = "large",
        srcs = ["//tests/engine:test_layout.py"],
        data = [base, image],
        env = layouts,
        # Gigabytes that a sandbox would link one by one, and two of them at once would only wait for the disk.
        tags = _ENGINE_TAGS,
        deps = ["//tests/engine:layout_test_deps"],
    )
    pytest_test(
        name = prefix + "engine_test",
        size = "enormous",
        srcs = [
            "//tests/engine:conftest.py",
            "//tests/engine:test_all_reduce.py",
            "//tests/engine:test_attestation.py",
            "//tests/engine:test_jit.py",
            "//tests/engine:test_packages.py",
            "//tests/engine:test_run.py",
            "//tests/engine:test_serving.py",
            "//tests/engine:test_vllm.py",
        ],
        data = [
            base,
            image,
            sdist,
            step_tests,
            "//tests/fixtures:libcuda.so.1",
            "//tests/fixtures:libnvidia-ml.so.1",
        ],
        env = dict(
            layouts,
            MOET_STEP_TESTS = "$(rootpaths %s)" % step_tests,
            MOET_STUB_LIBCUDA = "$(rootpath //tests/fixtures:libcuda.so.1)",
            MOET_STUB_NVML = "$(rootpath //tests/fixtures:libnvidia-ml.so.1)",
            MOET_VLLM_SDIST = "$(rootpath %s)" % sdist,
        ),
        tags = _ENGINE_TAGS,
        deps = ["//tests/engine:engine_test_deps"],
    )
    pytest_test(
        name = prefix + "podman_test",
        size = "enormous",
        srcs = [
            "//tests/engine:conftest.py",
            "//tests/engine:test_podman.py",
        ],
        data = [image],
        env = {"MOET_IMAGE_LAYOUT": layouts["MOET_IMAGE_LAYOUT"]},
        tags = _ENGINE_TAGS,
        deps = ["//tests/engine:engine_test_deps"],
    )
