"""moet release publish: what it publishes, what it leaves alone, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.engine import layout
from images.registry.client import Registry
from images.registry.push_image import push_image
from tests.engine.loading import Quiet
from tests.engine.synthetic import make_moet_layout
from tests.publish.place import Place
from tests.registry_faults import proxy as fault
from tests.release.toy import LINE, R0, R1, moet


def refused(place: Place, *more: str) -> str:
    """Publishes, which must be refused in one line; returns it."""
    status, out, err = place.publish(*more)
    *_, line = err.splitlines()
    assert (status, out) == (1, "") and line.startswith("moet release publish: "), (out, err)
    return line


def states(place: Place, *more: str) -> list[tuple[str, str, str]]:
    status, out, err = place.publish(*more, "--json")
    assert status == 0, err
    return [
        (release["tag"], step["step"], step["state"])
        for release in json.loads(out)["releases"]
        for step in release["steps"]
    ]


def test_all_of_it(place: Place, whole: dict[str, Any]) -> None:
    steps = ["git tag", "image", "SBOM", "provenance", "read back"]
    assert states(place) == [(tag, step, "done") for tag in (R0, R1) for step in steps]
    assert place.published() == whole
    assert place.leftovers() == []
    entries = {tag: place.toy.entry(tag) for tag in (R0, R1)}
    assert whole["tags"] == {entry.tag.name: entry.digest for entry in entries.values()}
    for entry in entries.values():
        assert f"refs/tags/{entry.tag.git} tag {entry.commit} {entry.tag}" in whole["git"]
        assert f"Image: {entry.digest}" in whole["git"]
        assert len(whole["referrers"][entry.tag.name]) == 2


def test_again_nothing_is_done(place: Place, whole: dict[str, Any]) -> None:
    states(place)
    place.proxy.clear()
    status, out, err = place.publish()
    assert (status, out.strip()) == (0, f"every release of {LINE} is published in {place.repository}"), err
    assert states(place, R1) == [
        *((R1, step, "there") for step in ("git tag", "image", "SBOM", "provenance")), (R1, "read back", "done"),
    ]
    assert place.proxy.count("PUT|POST|PATCH|DELETE") == 0
    assert place.published() == whole


def test_what_is_missing_is_added(place: Place, whole: dict[str, Any]) -> None:
    assert [step for tag, step, state in states(place, R0) if state == "done"][:1] == ["git tag"]
    place.git("tag", "--delete", place.toy.entry(R0).tag.git)
    found = states(place)
    assert [(step, state) for tag, step, state in found if tag == R0][:2] == [("git tag", "done"), ("image", "there")]
    assert place.published() == whole


def test_says_what_to_do_about_git(place: Place) -> None:
    _, out, _ = place.publish(R1)
    assert f"push them: git push origin {LINE}/vllm0.33.0-r1" in out.replace("\n", " ")


def test_dry_run_does_nothing(place: Place) -> None:
    before = place.published()
    assert states(place, "--dry-run") == [
        (tag, step, "would be done") for tag in (R0, R1) for step in ("git tag", "image", "SBOM", "provenance")
    ]
    assert place.published() == before and before["tags"] == {} and before["git"] == []
    assert place.proxy.count("PUT|POST|PATCH|DELETE") == 0


def test_from_layouts_nothing_is_built(place: Place, whole: dict[str, Any], tmp_path: Path) -> None:
    for tag in (R0, R1):
        shutil.copytree(place.toy.image(tag).directory, tmp_path / f"layout{tag[-1]}")
    (place.toy.root / "bazelw").write_text("#!/bin/sh\nexit 1\n")
    states(place, "--layout", str(tmp_path / "layout0"), "--layout", str(tmp_path / "layout1"))
    place.git("checkout", "bazelw")
    assert place.published() == whole


def test_read_back_deep(place: Place) -> None:
    states(place)
    place.proxy.add(fault.alters_answer(fault.flips), "GET", f"/blobs/{place.toy.image(R1).layers[0].blob.digest}")
    assert states(place, R1)
    assert "the registry sent bytes with digest" in refused(place, R1, "--deep")


def test_a_layout_of_another_image(place: Place, tmp_path: Path) -> None:
    other = layout.read(make_moet_layout(tmp_path / "other", R1, commit="f" * 40))
    line = refused(place, R1, "--layout", str(other.directory))
    assert f"CHANGELOG.md says {place.toy.entry(R1).digest}; {other.directory} has {other.manifest.digest}" in line
    assert place.published()["tags"] == {}


def test_a_build_that_gives_another_digest(new_place: Callable[[str], Place], place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.toy.made, tmp_path / "made")
    entry = place.toy.entry(R1)
    built = tmp_path / "made" / entry.commit / "images" / LINE / LINE
    shutil.rmtree(built)
    other = layout.read(make_moet_layout(built, R1, commit="f" * 40))
    place.git("config", "toy.made", str(tmp_path / "made"))
    line = refused(place, R1)
    assert f"commit {entry.commit[:12]} builds {other.manifest.digest} here, CHANGELOG.md says {entry.digest}" in line
    assert place.published()["tags"] == {} and place.leftovers() == []


def test_a_tag_that_stands_for_another_image(place: Place, tmp_path: Path) -> None:
    other = layout.read(make_moet_layout(tmp_path / "other", R1, commit="f" * 40))
    with Registry(place.proxy.address, plain_http=True) as registry:
        push_image(registry, place.name, place.toy.entry(R1).tag.name, other, Quiet())
    line = refused(place, R1)
    assert f"stands for {other.manifest.digest} there, CHANGELOG.md says {place.toy.entry(R1).digest}" in line
    assert place.published()["tags"] == {"vllm0.33.0-r1": other.manifest.digest}
    assert place.published()["git"] == []


def test_a_git_tag_that_is_elsewhere(place: Place) -> None:
    place.git("tag", f"{LINE}/vllm0.33.0-r1", "HEAD")
    line = refused(place, R1)
    assert f"git tag {LINE}/vllm0.33.0-r1 is at {place.git('rev-parse', 'HEAD')}" in line and "never moved" in line
    assert place.published()["tags"] == {}


def test_an_entry_that_is_not_committed(place: Place) -> None:
    place.toy.rewrite(R1, summary="Another one.")
    assert "its entry in CHANGELOG.md is not committed as it is here: commit it first" in refused(place, R1)


def test_an_entry_with_another_image_id(place: Place) -> None:
    place.toy.rewrite(R1, image_id="sha256:" + "0" * 64)
    assert f"CHANGELOG.md says sha256:{'0' * 64}: one was altered" in refused(place, R1)


def test_an_altered_record(place: Place) -> None:
    path = place.toy.root / f"releases/records/{LINE}/vllm0.33.0-r1/manifest.json"
    path.write_bytes(path.read_bytes() + b"\n")
    assert "one was altered" in refused(place, R1)
    assert place.published()["git"] == []


def test_a_commit_that_is_not_in_the_history(place: Place) -> None:
    place.git("checkout", "--quiet", "--orphan", "other")
    place.git("commit", "--quiet", "--no-gpg-sign", "--message", "another history")
    assert "is not in the history of HEAD" in refused(place, R1)


def test_a_shallow_clone(place: Place, tmp_path: Path) -> None:
    shutil.move(place.toy.root, tmp_path / "deep")
    place.toy.root.mkdir()
    place.git("clone", "--quiet", "--depth=1", f"file://{tmp_path}/deep", ".")
    assert "is not in this clone: git fetch --unshallow" in refused(place, R0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["toy:vllm0.33.0-r9"], "toy:vllm0.33.0-r9: no release in CHANGELOG.md"),
        (["r1"], "'r1' is no release's tag"),
        ([R1, "dsv41:vllm0.33.0-r1"], "dsv41, toy: a repository holds one line"),
        ([R1, "--key", "/none"], "/none: No such file or directory; make one with: openssl genpkey"),
        ([R1, "--registry", "toy"], "--registry 'toy': expected HOST/NAME"),
        ([R1, "--registry", "127.0.0.1:1/toy"], "nothing listens at 127.0.0.1:1"),
        ([R1, "--registry", "127.0.0.1:1/Toy"], "'Toy' is not an image name"),
        ([R1, "--layout", "/none"], "/none is not an OCI image layout"),
    ],
)
def test_what_cannot_be(place: Place, arguments: list[str], message: str) -> None:
    assert message in refused(place, *arguments)
    assert place.published()["tags"] == {}


def test_a_repository_of_no_line(place: Place) -> None:
    status, out, _ = place.publish("--registry", f"{place.proxy.address}/somewhere/else", "--dry-run", "--json")
    assert status == 0 and [one["tag"] for one in json.loads(out)["releases"]] == [R0, R1]


def test_another_key_signs_beside(place: Place, whole: dict[str, Any]) -> None:
    states(place)
    place.key.write_bytes(place.key.read_bytes().replace(b"AQEB", b"AgIC"))
    found = states(place, R1)
    assert [state for _, step, state in found if step in ("SBOM", "provenance")] == ["done", "done"]
    listed = place.published()["referrers"]["vllm0.33.0-r1"]
    assert len(listed) == 4 and set(listed) > set(whole["referrers"]["vllm0.33.0-r1"])


@pytest.mark.parametrize(
    ("what", "method", "path", "message"),
    [
        (fault.answers(500), "PUT", "/manifests/vllm", "the registry fails: run this again later"),
        (fault.answers(500), "PUT", "/manifests/sha256:", "the registry fails: run this again later"),
        (fault.answers(500), "PUT", "/manifests/sha256-", "the registry fails: run this again later"),
        (fault.answers(500), "GET", "/manifests/", "the registry fails: run this again later"),
        (fault.cuts_request(100), "PUT", "/uploads/", "the line was cut"),
        (fault.cuts_answer(10), "GET", "/blobs/", "the line was cut"),
        (fault.alters_answer(fault.flips), "GET", "/blobs/", "the registry sent bytes with digest"),
        (fault.claims("sha256:" + "0" * 64), "PUT", "/manifests/vllm", "the registry holds sha256:000"),
        (fault.claims("sha256:" + "0" * 64), "PUT", "/uploads/", "the registry calls it sha256:000"),
        (fault.answers(401, "UNAUTHORIZED"), "POST", "", "log in first"),
        (fault.answers(403, "DENIED"), "PUT", "", "no right to do this there"),
        (fault.loses_answer(), "PUT", "/manifests/vllm", "the line was cut"),
    ],
)
def test_a_registry_that_fails_and_then_does_not(
    place: Place, whole: dict[str, Any], what: fault.Fault, method: str, path: str, message: str
) -> None:
    place.proxy.add(what, method, path)
    assert message in refused(place)
    assert place.leftovers() == []
    place.proxy.clear()
    states(place)
    assert place.published() == whole


def test_a_registry_with_the_referrers_api(place: Place, whole: dict[str, Any]) -> None:
    place.proxy.referrers_api = True
    states(place)
    assert states(place, R1)[3] == (R1, "provenance", "there")
    assert place.published()["lists"] == []
    with Registry(place.proxy.address, plain_http=True) as registry:
        found = registry.referrers(place.name, place.toy.entry(R1).digest)
    assert sorted(one.digest for one in found) == whole["referrers"]["vllm0.33.0-r1"]


def test_the_bill_of_any_image(place: Place, tmp_path: Path) -> None:
    tree = ("--tree", str(place.toy.root))
    status, of_record, err = moet("image", "sbom", R1, *tree)
    assert status == 0, err
    assert moet("image", "sbom", str(place.toy.image(R1).directory), "--json", *tree)[1] == of_record
    states(place, R1)
    reference = f"{place.repository}:vllm0.33.0-r1"
    assert moet("image", "sbom", reference, "--plain-http", *tree)[1] == of_record
    path = tmp_path / "bill.json"
    assert moet("image", "sbom", R1, "--out", str(path), *tree)[:2] == (0, f"{path}: 3 components of record of {R1}\n")
    assert path.read_text() == of_record
    assert json.loads(of_record)["bomFormat"] == "CycloneDX"
