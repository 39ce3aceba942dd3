"""What `moet image explain`, `diff` and `list` print, from trees and layouts; no engine is there."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from images.inspect.example import make_tree, member, moet, moet_json, raw_tar, with_layer
from images.manifest import model
from releases.rollback.state import Place, State
from releases.tag import Tag
from tests.engine.synthetic import COMMIT, SITE, STEPS, make_moet_layout, step
from tools.moet.verbs import image_diff, image_explain, image_list

R0, R1, DEV = "dsv41:vllm0.33.0-r0", "dsv41:vllm0.33.0-r1", "dsv41:vllm0.33.0-r2-dev"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine, no state and no tree of this machine's."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def layouts(tmp_path: Path) -> dict[str, Path]:
    return {
        R0: make_moet_layout(tmp_path / "r0", R0, steps=()),
        R1: make_moet_layout(tmp_path / "r1", R1, kernels={"moet_kernels/k/k.so": b"kernel"}),
    }


@pytest.fixture
def tree(tmp_path: Path, layouts: dict[str, Path]) -> Path:
    return make_tree(tmp_path / "tree", layouts)


def test_explain(tree: Path, layouts: dict[str, Path]) -> None:
    status, text, _ = moet("image", "explain", R1, "--tree", str(tree))
    assert status == 0
    for words in (
        f"release    {R1}",
        f"commit     {COMMIT}",
        "base       vllm 0.33.0, commit 4ba787ec9",
        "pins       1 wheel, 1 deb, 1 source; sha256 ",
        "attested   5 files: 1 kernel, 3 overlay, 1 runtime",
        "step 1 tiers: numerics none, switch VLLM_MOET_TIERS=1: on by default, 0 turns it off",
        "step 2 next: numerics rounding, switch VLLM_MOET_NEXT=0: OFF by default, 1 turns it on",
        "  why       Without tiers, requests fail.",
        "  evidence  //images/dsv41:engine_test",
        "  drop when upstream has next",
        "  patch     tiers.patch, sha256 ",
        "dist-packages/moet_kernels/k/k.so",
        "manifest.layer",
    ):
        assert words in text
    assert "bash" not in text
    assert "5.2.15-2+b13" in moet("image", "explain", str(layouts[R1]), "--pins")[1]
    assert "no steps: upstream as it is pinned" in moet("image", "explain", str(layouts[R0]))[1]


def test_kernels_of_a_step(tmp_path: Path, layouts: dict[str, Path]) -> None:
    steps = (*STEPS, step(3, "third", kernels=("gemv",)))
    files = {f"moet_kernels/gemv/{name}": name.encode() for name in ("gemv.so", "op.py")}
    later = make_moet_layout(tmp_path / "later", DEV, steps=steps, kernels=files)
    digest = hashlib.sha256(b"gemv.so").hexdigest()
    text = moet("image", "explain", str(later))[1]
    assert f"  kernels   gemv, sha256 {digest}\n" in text
    assert f"dist-packages/moet_kernels/gemv/gemv.so   {digest}" in text and "op.py" not in text
    names = [Path(each["path"]).name for each in moet_json("image", "explain", str(later))["kernels"]]
    assert names == ["gemv.so", "op.py"]
    text = moet("image", "diff", str(layouts[R0]), str(later))[1]
    assert "VLLM_MOET_THIRD, default 1, numerics none, kernels gemv" in text
    assert text.count("kernels gemv") == 1
    assert "moet_kernels/gemv/gemv.so" in text


def test_explain_as_json(tree: Path, layouts: dict[str, Path]) -> None:
    by_record = moet_json("image", "explain", R1, "--tree", str(tree))
    by_layout = moet_json("image", "explain", str(layouts[R1]), "--tree", str(tree))
    differ = {key for key in by_record if by_record[key] != by_layout[key]}
    assert differ == {"source", "checked"}
    assert (by_record["schema"], by_record["release"], by_record["commit"]) == ("moet.image-explain.v1", R1, COMMIT)
    assert [each["patches"][0]["name"] for each in by_record["steps"]] == ["tiers.patch", "next.patch"]
    assert by_record["kernels"][0]["path"].endswith("moet_kernels/k/k.so")


def test_explain_unreleased_and_unknown(tmp_path: Path, layouts: dict[str, Path]) -> None:
    dev = make_moet_layout(tmp_path / "dev", DEV)
    text = moet("image", "explain", str(dev))[1]
    assert "commit     none: an unreleased build" in text and "release    none" in text
    other = make_tree(tmp_path / "other", {R0: layouts[R0]})
    text = moet("image", "explain", str(layouts[R1]), "--tree", str(other))[1]
    assert "release    says that it is one; CHANGELOG.md known here does not have this image" in text


def test_explain_prints_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\u202e\nsecond line"

    def spoil(manifest: dict[str, list[dict[str, str]]]) -> None:
        for each in (*manifest["steps"], *manifest["patches"]):
            each.update(reason=evil, drop_when=evil)
        manifest["pins"][0].update(name=evil, version=evil)
        manifest["base"]["version"] = evil  # type: ignore[call-overload]

    layout = make_moet_layout(tmp_path / "evil", edit_manifest=spoil)
    other = make_moet_layout(tmp_path / "fine")
    for command in (("explain", str(layout), "--pins"), ("diff", str(other), str(layout))):
        status, text, _ = moet("image", *command)
        assert status == 0 and r"\x1b]0;title" in text
        assert all(line.isprintable() for line in text.splitlines())


def test_against_the_tree_that_builds_the_same(tmp_path: Path, layouts: dict[str, Path]) -> None:
    """Tag and commit are which image it is, not what is in it."""
    later = make_moet_layout(tmp_path / "later", DEV, kernels={"moet_kernels/k/k.so": b"kernel"})
    tree = make_tree(tmp_path / "tree", layouts, manifest=_manifest(later))
    status, text, _ = moet("image", "explain", R1, "--against-tree", "--tree", str(tree))
    assert status == 0 and "the tree would build the same" in text
    assert moet_json("image", "explain", R1, "--against-tree", "--tree", str(tree))["against_tree"]["same"] is True


def test_against_the_tree_that_moved_on(tmp_path: Path, layouts: dict[str, Path]) -> None:
    steps = (replace(STEPS[0], reason="Another."), step(3, "third"))
    later = make_moet_layout(
        tmp_path / "later", DEV, steps=steps, patches={"tiers.patch": "new"}, pins={"torch": "2.14.0"}
    )
    tree = make_tree(tmp_path / "tree", layouts, manifest=_manifest(later))
    found = moet_json("image", "explain", R1, "--against-tree", "--tree", str(tree), status=3)["against_tree"]
    assert found["target"] == "//images/dsv41:manifest" and found["same"] is False
    assert [each["name"] for each in found["steps"]["added"]] == ["third"]
    assert [each["name"] for each in found["steps"]["removed"]] == ["next"]
    assert found["steps"]["changed"][0]["fields"]["reason"]["to"] == "Another."
    assert list(found["patches"]["changed"][0]["fields"]) == ["sha256"]
    assert [each["name"] for each in found["pins"]["added"]] == ["torch"]
    assert [each["path"] for each in found["files"]["removed"] if each["kind"] == "kernel"]
    status, text, _ = moet("image", "explain", R1, "--against-tree", "--tree", str(tree))
    assert status == 3 and "steps: 1 only in the tree, 1 only in the image, 1 changed" in text


def test_against_a_tree_that_is_none_or_lacks_the_line(tmp_path: Path, layouts: dict[str, Path], tree: Path) -> None:
    status, _, error = moet("image", "explain", str(layouts[R1]), "--against-tree")
    assert status == 1 and "--tree DIR" in error
    other = make_moet_layout(tmp_path / "other", "other:vllm0.33.0-r1")
    status, _, error = moet("image", "explain", str(other), "--against-tree", "--tree", str(tree))
    assert status == 1 and "has no line 'other'" in error
    (tree / "bazelw").write_text("#!/bin/sh\nexit 7\n")
    status, _, error = moet("image", "explain", R1, "--against-tree", "--tree", str(tree))
    assert status == 1 and "exit status 7" in error


def test_diff_of_releases(tree: Path) -> None:
    found = moet_json("image", "diff", R0, R1, "--tree", str(tree))
    assert (found["schema"], found["same_image"], found["same_content"]) == ("moet.image-diff.v1", False, False)
    assert [each["name"] for each in found["steps"]["added"]] == ["tiers", "next"]
    assert [each["name"] for each in found["switches"]["added"]] == ["VLLM_MOET_NEXT", "VLLM_MOET_TIERS"]
    states = {layer["name"]: layer["state"] for layer in found["layers"]}
    assert states == {
        "rootfs": "same",
        "vllm": "same",
        "runtime": "same",
        "kernels": "added",
        "overlay_layer": "added",
        "manifest.layer": "changed",
    }
    sizes = {layer["name"]: layer["to"]["size"] for layer in found["layers"]}
    new = sizes["kernels"] + sizes["overlay_layer"] + sizes["manifest.layer"]
    assert found["transfer"]["docker_load"] == {"layers": 3, "bytes": new}
    assert found["transfer"]["pull"]["layers"] == 3 and new < found["transfer"]["pull"]["bytes"] < new + 9000
    text = moet("image", "diff", R0, R1, "--tree", str(tree))[1]
    for words in ("steps: 2 added", "attested files: 4 added", "layers: 3 the same, 3 not", "the same: pins"):
        assert words in text


def test_diff_of_pins_and_patches(tmp_path: Path) -> None:
    a = make_moet_layout(tmp_path / "a", R1, pins={"torch": "2.13.0", "old": "1"})
    b = make_moet_layout(tmp_path / "b", DEV, pins={"torch": "2.14.0", "new": "1"}, patches={"next.patch": "x"})
    found = moet_json("image", "diff", str(a), str(b))
    assert [each["name"] for each in found["pins"]["added"]] == ["new"]
    assert [each["name"] for each in found["pins"]["removed"]] == ["old"]
    assert found["pins"]["changed"][0]["fields"]["version"] == {"from": "2.13.0", "to": "2.14.0"}
    assert [each["name"] for each in found["patches"]["changed"]] == ["next.patch"]
    changed = [each["name"].removeprefix(f"{SITE}/") for each in found["files"]["changed"]]
    assert changed == ["vllm-0.33.0.dist-info/RECORD", "vllm/next.py"] and not found["steps"]["changed"]


def test_diff_by_chain_and_by_layer(tmp_path: Path) -> None:
    """Docker's classic store must have all of what is above a layer that changed; a registry sends that one alone."""
    layers = [{"low": {"a": data}, "high": {"b": b"same" * 999}} for data in (b"1", b"2")]
    a, b = (make_moet_layout(tmp_path / str(n), R1, layers=each, steps=()) for n, each in enumerate(layers))
    found = moet_json("image", "diff", str(a), str(b))
    assert [(layer["name"], layer["state"]) for layer in found["layers"]] == [
        ("low", "changed"),
        ("high", "same"),
        ("runtime", "same"),
        ("manifest.layer", "same"),
    ]
    assert (found["transfer"]["pull"]["layers"], found["transfer"]["docker_load"]["layers"]) == (1, 4)
    assert found["same_content"] is False


def test_diff_of_the_same_content(tmp_path: Path) -> None:
    a, b = make_moet_layout(tmp_path / "a", R1), make_moet_layout(tmp_path / "b", DEV)
    assert moet("image", "diff", str(a), str(b), "--exit-code")[0] == 0
    assert moet_json("image", "diff", str(a), str(b))["same_content"] is True
    assert moet_json("image", "diff", str(a), str(a))["same_image"] is True
    c = make_moet_layout(tmp_path / "c", R0, steps=())
    assert moet("image", "diff", str(a), str(c), "--exit-code")[0] == 3
    assert moet("image", "diff", str(a), str(c))[0] == 0


def test_diff_of_files(tmp_path: Path, tree: Path) -> None:
    a = make_moet_layout(tmp_path / "a", R1, patches={"tiers.patch": "one"})
    b = make_moet_layout(tmp_path / "b", R1, patches={"tiers.patch": "two"}, steps=(*STEPS, step(3, "third")))
    found = moet_json("image", "diff", str(a), str(b), "--files")["contents"]
    short = {state: [each["path"].rpartition("/")[2] for each in found[state]] for state in found}
    assert short == {"added": ["third.py"], "removed": [], "changed": ["RECORD", "tiers.py", "manifest.json"]}
    assert "1 added, 0 removed, 3 changed" in moet("image", "diff", str(a), str(b), "--files")[1]
    status, _, error = moet("image", "diff", R0, str(a), "--files", "--tree", str(tree))
    assert status == 1 and "--files needs a layout" in error
    bad = with_layer(b, tmp_path / "bad", raw_tar((member("x"), b"1")), diff_id=f"sha256:{'1' * 64}")
    status, _, error = moet("image", "diff", str(a), str(bad), "--files")
    assert status == 1 and "corrupt" in error


def test_list(tree: Path, layouts: dict[str, Path]) -> None:
    found = moet_json("image", "list", "--tree", str(tree))
    assert [(row["tag"], row["record"], row["problems"]) for row in found["tags"]] == [(R1, True, []), (R0, True, [])]
    assert found["tags"][0]["digest"] == json.loads((layouts[R1] / "index.json").read_bytes())["manifests"][0]["digest"]
    status, text, notes = moet("image", "list", "dsv41", "--tree", str(tree))
    assert status == 0 and R1 in text and "2026-01-31" in text
    assert "no engine is listed" in notes
    assert moet_json("image", "list", "other", "--tree", str(tree))["tags"] == []
    assert moet("image", "list", "--engine", "docker", "--tree", str(tree))[0] == 1


def test_list_marks_the_current_one(tree: Path) -> None:
    assert not any(row["current"] for row in moet_json("image", "list", "--tree", str(tree))["tags"])
    State("moet.state.v1", "dsv41", ()).change("set", Place(R0, "sha256:0", "sha256:0", "docker"), "why").write()
    rows = {row["tag"]: row["current"] for row in moet_json("image", "list", "--tree", str(tree))["tags"]}
    assert rows == {R1: False, R0: True}
    assert any(line.split()[:2] == ["*", R0] for line in moet("image", "list", "--tree", str(tree))[1].splitlines())


def test_list_says_that_a_record_is_missing(tree: Path) -> None:
    (tree / "releases/records/dsv41/vllm0.33.0-r0").rename(tree / "gone")
    found = moet_json("image", "list", "--tree", str(tree), status=3)
    assert "is missing" in found["tags"][1]["problems"][0]


def test_list_refuses_a_registry_that_is_none(tree: Path) -> None:
    for text in ("dsv41", "host.example/dsv41:tag", "/x"):
        status, _, error = moet("image", "list", "--registry", text, "--tree", str(tree))
        assert status == 1 and "expected HOST[:PORT]/NAME" in error


@pytest.mark.parametrize("verb", [image_explain.VERB, image_diff.VERB, image_list.VERB])
def test_verbs_say_what_they_do(verb: object) -> None:
    from tools.moet.verb import Verb

    assert isinstance(verb, Verb)
    assert verb.summary and not verb.summary.endswith(".") and verb.examples and verb.exits


def test_tags_of_the_tree_parse() -> None:
    assert Tag.parse(R1).git == "dsv41/vllm0.33.0-r1"


def _manifest(layout: Path) -> bytes:
    from images.inspect import source

    return model.dumps(source.open_image(str(layout), None).manifest)
