"""vLLM: the engine that Moet patches. Its wheel is locked in third_party/python/dsv41.lock.bzl.

To bump:
1. moet patch doctor --to <new> says which patches apply, moved, conflict or were taken upstream; with
   --write patches/vllm-<new> it renews those that only moved. docs/maintain.md goes on from there.
2. Set the version in third_party/python/dsv41.toml, then bazel run //third_party/python:lock -- dsv41
3. Set version, commit (vllm/_version.py of the wheel, full form from the release's git tag), sdist
   and released here.
"""

VLLM = struct(
    name = "vllm",
    version = "0.33.0",
    commit = "4ba787ec9",
    # Upload time of the wheel: the age that unreleased images and their files state.
    released = "2026-11-02T10:13:18Z",
    sdist = struct(
        file = "vllm-0.33.0.tar.gz",
        sha256 = "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
    ),
)
