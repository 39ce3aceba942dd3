"""Layouts and releases into an engine and a registry, by `moet image load` and `moet image push`."""

from pathlib import Path

from images.engine import layout
from images.registry.client import Registry
from tests.engine.engines import loopback_registry
from tests.engine.synthetic import make_moet_layout
from tests.release.host import Host
from tests.release.toy import R0, R1, document, moet


def test_a_release_is_built_from_its_commit_and_loaded(host: Host) -> None:
    tree = ["--tree", str(host.toy.root)]
    loaded = document("image", "load", R1, *tree, "--host", host.docker.host)
    assert loaded["schema"] == "moet.image-load.v1" and loaded["layers_skipped"] == 0
    assert host.tags() == {R1: host.toy.entry(R1).image_id}
    assert document("image", "load", R0, *tree, "--host", host.docker.host)["layers_skipped"] > 0
    host.toy.rebuild_is_gone()
    status, _, err = moet("image", "load", R1, *tree, "--host", host.docker.host)
    assert status == 1 and "bazel" in err.splitlines()[-1]


def test_what_was_built_here_last_is_taken_if_it_is_the_release(host: Host) -> None:
    (host.toy.root / "bazel-bin").symlink_to(host.toy.made / host.toy.entry(R1).commit)
    (host.toy.root / "bazelw").write_text("#!/bin/sh\nexit 1\n")
    arguments = ["--tree", str(host.toy.root), "--host", host.docker.host]
    assert document("image", "load", R1, *arguments)["image_id"] == host.toy.entry(R1).image_id
    assert document(*host.arguments("--to", R1))["source"] == "engine"
    host.docker.client.images.remove(R1)
    assert document(*host.arguments("--to", R1))["source"] == "rebuild"


def test_a_layout_keeps_its_name_and_a_release_its_tag(host: Host, tmp_path: Path) -> None:
    image = host.toy.image(R1)
    other = layout.read(make_moet_layout(tmp_path / "other", R1, commit="1" * 40))
    assert document("image", "load", str(image.directory), "--host", host.docker.host)["reference"] == R1
    status, _, err = moet("image", "load", str(other.directory), "--host", host.docker.host)
    assert status == 1 and err.count("\n") == 1
    assert f"{R1} is {image.config.digest} in docker" in err and "never moved" in err
    named = document("image", "load", str(other.directory), "--name", "toy:mine", "--host", host.docker.host)
    assert named["image_id"] == other.config.digest
    assert host.tags() == {R1: image.config.digest, "toy:mine": other.config.digest}


def test_pushed_and_not_moved(host: Host, tmp_path: Path) -> None:
    other = layout.read(make_moet_layout(tmp_path / "other", R1, commit="1" * 40))
    tree = ["--tree", str(host.toy.root), "--plain-http"]
    with loopback_registry() as address:
        target = f"{address}/moet/{R1}"
        pushed = document("image", "push", R1, target, *tree)
        assert (pushed["schema"], pushed["manifest_digest"]) == ("moet.image-push.v1", host.toy.entry(R1).digest)
        assert document("image", "push", str(host.toy.image(R1).directory), target, "--plain-http")["bytes_sent"] == 0
        status, _, err = moet("image", "push", str(other.directory), target, "--plain-http")
        assert status == 1 and host.toy.entry(R1).digest in err and "never moved" in err
        with Registry(address, plain_http=True) as registry:
            found = registry.resolve("moet/toy", "vllm0.33.0-r1")
    assert found and found.digest == host.toy.entry(R1).digest


def test_what_is_no_image(host: Host) -> None:
    for name, words in (
        ("toy:vllm0.33.0-r9", "no release in CHANGELOG.md"),
        ("nothing", "is no release's tag"),
        (str(host.toy.root), "is not an OCI image layout"),
    ):
        status, _, err = moet("image", "load", name, "--tree", str(host.toy.root), "--host", host.docker.host)
        assert status == 1 and words in err and err.count("\n") == 1
