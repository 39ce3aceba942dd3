import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from releases.checking import check
from releases.testing.toy import R0, R1, R2, Toy
from tests.faults import killer
from tools.cli.errors import UserError

RECEIPT = "docs/evidence/toy-vllm0.33.0-r1/test.json"
OTHER = "docs/evidence/toy-vllm0.33.0-r0/test.json"


def problems(toy: Toy) -> list[str]:
    return [str(problem) for problem in check.check(toy.root).problems]


def line_of(toy: Toy, text: str) -> int:
    return next(number for number, line in enumerate(toy.read("CHANGELOG.md").split("\n"), 1) if text in line)


def expect(toy: Toy, says: str, at: str | None = None) -> None:
    """One of the problems says so, in the line of CHANGELOG.md that has `at`."""
    found = problems(toy)
    start = f"CHANGELOG.md:{line_of(toy, at)}: " if at else ""
    assert any(one.startswith(start) and says in one and "\n" not in one for one in found), found


def change(old: str, new: str) -> Callable[[Toy], None]:
    return lambda toy: toy.edit("CHANGELOG.md", old, new)


def digest(toy: Toy, index: int) -> str:
    return toy.changelog.entries[index].digest


def test_two_releases_hold(toy: Toy) -> None:
    found = check.check(toy.root)
    assert (found.problems, found.notes, found.releases) == ((), (), (R1, R0))


def test_a_tree_without_releases_holds(fresh: Toy) -> None:
    assert problems(fresh) == []


R1_HEAD = "## [toy:vllm0.33.0-r1]"
R0_HEAD = "## [toy:vllm0.33.0-r0]"

WORDS = [
    ("- Digest: ", "- Digset: ", "expected '- FIELD: value'", "- Digset: "),
    ("- 94 tests pass ([receipt]", "- TODO: say ([receipt]", "is not written yet: TODO: say", "TODO: say"),
    ("- 94 tests pass", "- 95 tests pass", "the figure 95 is not in the output of the receipt", "- 95 tests"),
    (f" ([receipt]({RECEIPT}))", "", "the figure 94 has no receipt", "- 94 tests pass."),
    (f" ([receipt]({RECEIPT}))", "", "evidence without a receipt", "- 94 tests pass."),
    (f" ([receipt]({RECEIPT}))", "", "is not backed", R1_HEAD),
    (RECEIPT, OTHER, "is not backed: no bullet below Evidence links to a sound receipt about", R1_HEAD),
    (RECEIPT, "docs/evidence/none.json", "docs/evidence/none.json: cannot be read: No such file", "none.json"),
    (RECEIPT, "docs/evidence/../x.json", "expected a path of a .json file below docs/evidence", "x.json"),
    (RECEIPT, "images/x.json", "cannot be read", "images/x.json"),
    ("it does a thing.", "it is 3 times faster.", "the figure 3 has no receipt", "3 times"),
    ("vllm 0.33.0; added steps 1, 2.", "It is 3 % faster.", "the figure 3 has no receipt", R1_HEAD),
    ("- Steps: 1 tiers, 2 next", "- Steps: 1 tiers", "Steps is 1 tiers, the record has 1 tiers, 2 next", R1_HEAD),
    ("- Step 1, tiers: ", "- ", "step 1 tiers was added since toy:vllm0.33.0-r0: expected '- Step 1, tiers", R1_HEAD),
    ("- Step 1, tiers: ", "- Step 1, tires: ", "step 1 tires was not added", "- Step 1, tires"),
    ("- Step 1, tiers: ", "- Step 3, x: y\n- Step 1, tiers: ", "step 3 x was not added since", "- Step 3, x"),
    ("### Added\n\n- Step 1", "### Changed\n\n- Step 1", "step 1 tiers was added since", R1_HEAD),
    ("### Added\n\n- Step 1", "### Changed\n\n- Step 1", "step 1 tiers was not changed since", "- Step 1, tiers"),
    ("- Follows: toy:vllm0.33.0-r0", "- Follows: none", "Follows is none, the release before it is toy:", R1_HEAD),
    ("- Follows: toy:vllm0.33.0-r0", "- Follows: toy:vllm0.33.0-r7", "Follows is toy:vllm0.33.0-r7", R1_HEAD),
    ("- Rollback: toy:vllm0.33.0-r0", "- Rollback: none", "Rollback is none, which only a line's first", R1_HEAD),
    ("- Rollback: toy:vllm0.33.0-r0", "- Rollback: toy:vllm0.33.0-r7", "is no older release in this file", R1_HEAD),
    ("- Rollback: toy:vllm0.33.0-r0", "- Rollback: toy:vllm0.33.0-r1", "Rollback is the release itself", R1_HEAD),
    ("- Rollback: toy:vllm0.33.0-r0", "- Rollback: top:vllm0.33.0-r0", "is of another line", R1_HEAD),
    ("- Rollback: none", "- Rollback: toy:vllm0.33.0-r1", "is no older release in this file", R0_HEAD),
    ("VLLM_MOET_TIERS=0`\n", "VLLM_MOET_TIRES=0`\n", "VLLM_MOET_TIRES is no switch of the image; it has", R1_HEAD),
    ("VLLM_MOET_TIERS=0`\n", "VLLM_MOET_TIERS=1`\n", "VLLM_MOET_TIERS=1: only 0 gives back", R1_HEAD),
    ("- Base: vllm 0.33.0 (4", "- Base: vllm 0.33.0 (5", "Base is vllm 0.33.0 5", R1_HEAD),
    ("- Base: vllm 0.33.0 (4", "- Base: vllm 0.33.0 (5", "has the base vllm 0.33.0 4ba787ec9, Base is", R1_HEAD),
    ("[toy:vllm0.33.0-r1] - 2", "[toy:vllm0.33.0-r1] - 1", "is dated 1", R1_HEAD),
    ("[toy:vllm0.33.0-r1] - 2", "[toy:vllm0.33.0-r1] - 1", "newest first", R1_HEAD),
    ("[toy:vllm0.33.0-r1] - 2", "[toy:vllm0.33.0-r1] - 3", ", today is ", R1_HEAD),
]


@pytest.mark.parametrize(("old", "new", "says", "at"), WORDS, ids=[f"{word[2][:30]}" for word in WORDS])
def test_words(toy: Toy, old: str, new: str, says: str, at: str) -> None:
    toy.edit("CHANGELOG.md", old, new)
    expect(toy, says, at)


def test_an_entry_that_says_nothing(toy: Toy) -> None:
    text = toy.read("CHANGELOG.md")
    start = text.index("### Added", text.index(R0_HEAD))
    toy.write("CHANGELOG.md", text[:start] + text[text.index("### Evidence", start) :])
    expect(toy, "says nothing of what is different", R0_HEAD)


@pytest.mark.parametrize("name", ["Digest", "Image ID", "Commit"])
def test_digest_image_id_and_commit(toy: Toy, name: str) -> None:
    text = toy.read("CHANGELOG.md")
    line = next(line for line in text.split("\n") if line.startswith(f"- {name}: "))
    toy.write("CHANGELOG.md", text.replace(line, line[:-3] + ("00`" if line[-3:-1] != "00" else "11`"), 1))
    expect(toy, f"{name} is ", R1_HEAD)
    expect(toy, f"{name} was ", R1_HEAD)


RECEIPTS = [
    ({"exit": 1}, "is of a command that failed with exit status 1"),
    ({"schema": "moet.receipt.v2"}, "is no receipt of this version: schema 'moet.receipt.v2'"),
    ({"output": 3}, "is no receipt: output: expected a string, found 3"),
    ({"extra": 3}, "is no receipt: extra: unknown key"),
    ({"subject": {"tag": None, "digest": "sha256:" + "0" * 64}}, "which no release here has"),
]


@pytest.mark.parametrize(("fields", "says"), RECEIPTS, ids=[says for _, says in RECEIPTS])
def test_receipts(toy: Toy, fields: dict[str, object], says: str) -> None:
    toy.receipt(RECEIPT, digest(toy, 0), **{"output": "94 passed", **fields})
    expect(toy, f"{RECEIPT}: {says}" if "which" not in says else says, "- 94 tests pass")


def test_a_receipt_that_calls_the_image_otherwise(toy: Toy) -> None:
    toy.receipt(RECEIPT, digest(toy, 0), "94 passed", subject={"tag": str(R0), "digest": digest(toy, 0)})
    expect(toy, f"calls {digest(toy, 0)} {R0}, it is {R1}", "- 94 tests pass")


def test_a_receipt_that_is_no_json(toy: Toy) -> None:
    toy.write(RECEIPT, "{")
    expect(toy, "is no receipt: not JSON", "- 94 tests pass")


def test_a_figure_of_another_release(toy: Toy) -> None:
    toy.receipt(OTHER, digest(toy, 1), "94 passed in 2.5 s")
    toy.edit("CHANGELOG.md", "it does a thing.", f"r0 took 2.5 s ([then]({OTHER})), it took 1.6 s ([now]({RECEIPT})).")
    assert problems(toy) == []


def test_records(toy: Toy) -> None:
    folder = "releases/records/toy/vllm0.33.0-r1"
    (toy.root / folder / "config.json").write_bytes((toy.root / folder / "config.json").read_bytes() + b" ")
    expect(toy, "config.json has sha256", R1_HEAD)
    (toy.root / folder / "config.json").unlink()
    expect(toy, f"{folder}: No such file", R1_HEAD)
    toy.git("rm", "-rqf", folder)
    expect(toy, f"{folder} is missing: moet release cut writes it", R1_HEAD)


def test_a_record_of_another_image(toy: Toy) -> None:
    for name in ("image.json", "config.json", "manifest.json"):
        toy.write(f"releases/records/toy/vllm0.33.0-r1/{name}", toy.read(f"releases/records/toy/vllm0.33.0-r0/{name}"))
    expect(toy, f"Digest is {digest(toy, 0)}, the record has {digest(toy, 1)}", R1_HEAD)
    expect(toy, "tag is toy:vllm0.33.0-r1, the record has toy:vllm0.33.0-r0", R1_HEAD)
    expect(toy, f"Commit is {toy.changelog.entries[0].commit}, the record has", R1_HEAD)


def test_a_record_without_a_release(toy: Toy) -> None:
    toy.write("releases/records/toy/vllm0.33.0-r9/image.json", "")
    expect(toy, "releases/records/toy/vllm0.33.0-r9: CHANGELOG.md has no release toy:vllm0.33.0-r9")


def test_a_tag_is_used_twice(toy: Toy) -> None:
    text = toy.read("CHANGELOG.md")
    toy.write("CHANGELOG.md", text + "\n" + text[text.index(R0_HEAD) :])
    expect(toy, "toy:vllm0.33.0-r0: is released already, in line")


def test_an_entry_that_is_gone(toy: Toy) -> None:
    text = toy.read("CHANGELOG.md")
    toy.write("CHANGELOG.md", text[: text.index(R1_HEAD)] + text[text.index(R0_HEAD) :])
    expect(toy, "toy:vllm0.33.0-r1 was released in")
    toy.commit("It never happened")
    expect(toy, "and is gone: put it back")


def test_an_entry_that_was_moved_in_a_branch_that_was_merged(toy: Toy) -> None:
    past = toy.read("CHANGELOG.md")
    old = digest(toy, 0)
    toy.git("checkout", "-qb", "side")
    toy.write("CHANGELOG.md", past.replace(old, "sha256:" + "5" * 64))
    toy.commit("Another digest")
    toy.write("CHANGELOG.md", past)
    toy.commit("Back")
    toy.git("checkout", "-q", "main")
    toy.commit("Meanwhile")
    toy.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
    expect(toy, f"Digest was sha256:{'5' * 64} in ", R1_HEAD)


def test_a_git_tag(toy: Toy) -> None:
    toy.git("tag", R1.git, toy.changelog.entries[0].commit)
    assert problems(toy) == []
    toy.git("tag", "--force", R1.git, "HEAD")
    expect(toy, f"git tag {R1.git} points to {toy.git('rev-parse', 'HEAD')}: tags are never moved", R1_HEAD)


def test_a_commit_that_is_not_part_of_the_branch(toy: Toy) -> None:
    commit = toy.changelog.entries[0].commit
    text = toy.read("CHANGELOG.md")
    folder = toy.root / "releases/records"
    files = {path: path.read_bytes() for path in folder.rglob("*.json")}
    evidence = toy.read(RECEIPT)
    toy.git("checkout", "-q", "--orphan", "elsewhere")
    toy.write("CHANGELOG.md", text)
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    toy.write(RECEIPT, evidence)
    toy.commit("Orphan")
    expect(toy, f"commit {commit} is not part of what is checked out", R1_HEAD)


def test_a_commit_that_does_not_exist(toy: Toy) -> None:
    commit = toy.changelog.entries[0].commit
    toy.write("CHANGELOG.md", toy.read("CHANGELOG.md").replace(commit, "0" * 40))
    expect(toy, f"commit {'0' * 40} does not exist here", R1_HEAD)


def recut(toy: Toy, edit: Callable[[], None]) -> None:
    """Cuts r2 of a commit that `edit` made, and settles it."""
    edit()
    toy.commit("Work")
    toy.release()


def test_a_commit_of_another_number(toy: Toy) -> None:
    parent = toy.git("rev-parse", toy.changelog.entries[0].commit + "~1")
    toy.line(7, {1: "tiers"})
    commit = toy.commit("Seven")
    text = toy.read("CHANGELOG.md").replace(toy.changelog.entries[0].commit, commit)
    toy.write("CHANGELOG.md", text)
    expect(toy, "at its commit, images/toy/line.bzl makes toy:vllm0.33.0-r7", R1_HEAD)
    expect(toy, "at its commit, images/toy/line.bzl has the steps 1 tiers", R1_HEAD)
    toy.write("CHANGELOG.md", text.replace(commit, parent))
    expect(toy, "Commit is ", R1_HEAD)


def test_evidence_of_a_step_that_does_not_exist(toy: Toy) -> None:
    recut(toy, lambda: toy.edit("images/toy/line.bzl", "//images/toy:engine_test", "//images/toy:no_test"))
    text = "step 1 tiers gives //images/toy:no_test as its evidence; its commit makes no such target"
    expect(toy, text, "## [toy:vllm0.33.0-r2]")
    assert len(problems(toy)) == 1


def test_evidence_of_a_step_that_is_a_file(toy: Toy) -> None:
    toy.write("docs/seen.txt", "")
    recut(toy, lambda: toy.edit("images/toy/line.bzl", "//images/toy:engine_test", "docs/seen.txt"))
    assert problems(toy) == []


def test_a_number_is_never_reused(toy: Toy) -> None:
    recut(toy, lambda: toy.line(2, {2: "next"}))
    assert problems(toy) == []
    toy.line(3, {1: "other", 2: "next"})
    text = "images/toy/line.bzl: step number 1 is other, and was tiers in toy:vllm0.33.0-r1: numbers are never reused"
    assert problems(toy) == [text]
    toy.commit("Reuse")
    toy.release()
    expect(toy, "step number 1 is other, and was tiers in toy:vllm0.33.0-r1", "## [toy:vllm0.33.0-r3]")


def test_retired_and_changed_steps_must_be_spoken_of(toy: Toy) -> None:
    toy.line(2, {2: "next", 3: "third"})
    toy.write("patches/next.patch", "another\n")
    toy.commit("Work")
    toy.release()
    assert problems(toy) == []
    head = "## [toy:vllm0.33.0-r2]"
    for name, section in ((1, "Removed"), (2, "Changed"), (3, "Added")):
        before = toy.read("CHANGELOG.md")
        bullet = next(line for line in before.split("\n") if line.startswith(f"- Step {name}, "))
        toy.edit("CHANGELOG.md", bullet, "- Something.")
        word = {"Removed": "retired", "Changed": "changed", "Added": "added"}[section]
        expect(toy, f"was {word} since toy:vllm0.33.0-r1: expected '- Step {name}, ", head)
        toy.write("CHANGELOG.md", before)


def test_the_next_number_is_free(toy: Toy) -> None:
    toy.edit("images/toy/line.bzl", "release = 2", "release = 1")
    expect(toy, "images/toy/line.bzl: release = 1, but toy:vllm0.33.0-r1 is released (CHANGELOG.md:7): set 2")


def test_unreleased_of_a_line_that_is_none(toy: Toy) -> None:
    toy.edit("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n### nope\n\n#### Added\n\n- A line.\n")
    expect(toy, "[Unreleased] speaks of nope, and there is no images/nope/line.bzl")


def test_order(toy: Toy) -> None:
    toy.release()
    text = toy.read("CHANGELOG.md")
    two, one, zero = (text.index(f"## [toy:vllm0.33.0-r{number}]") for number in (2, 1, 0))
    toy.write("CHANGELOG.md", text[:two] + text[one:zero] + text[two:one] + text[zero:])
    expect(toy, f"stands above {R2}: newest first", R1_HEAD)
    expect(toy, "Follows is toy:vllm0.33.0-r1, the release before it is toy:vllm0.33.0-r0", "## [toy:vllm0.33.0-r2]")


def test_all_problems_are_listed_by_line(toy: Toy) -> None:
    for edit in (change("- 94 tests", "- 95 tests"), change("- Rollback: toy:vllm0.33.0-r0", "- Rollback: none")):
        edit(toy)
    toy.edit("CHANGELOG.md", "it does a thing.", "TODO: x")
    lines = [problem.line for problem in check.check(toy.root).problems]
    assert len(lines) == 3
    assert lines == sorted(lines)


def test_a_shallow_clone_says_what_it_cannot_check(toy: Toy, tmp_path: Path) -> None:
    toy.git("clone", "-q", "--depth=1", f"file://{toy.root}", str(tmp_path / "shallow"))
    found = check.check(tmp_path / "shallow")
    assert found.problems == ()
    assert found.notes[0] == (
        "this clone is shallow: history and commits before it were not checked: git fetch --unshallow"
    )
    assert any(f"{R1}: commit" in note and "is not in this shallow clone" in note for note in found.notes)


def test_no_git(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no commit is checked out"):
        check.check(tmp_path)


def test_rebuild(toy: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    toy.release()
    told: list[str] = []

    def doing(text: str) -> contextlib.AbstractContextManager[None]:
        told.append(text)
        return contextlib.nullcontext()

    assert check.check(toy.root, check.newest, doing).problems == ()
    assert [text.split(" ")[1] for text in told] == [str(R2)]
    told.clear()
    assert check.check(toy.root, check.every, doing).problems == ()
    assert sorted(text.split(" ")[1] for text in told) == [str(R0), str(R1), str(R2)]
    monkeypatch.setenv("TOY_SALT", "another")
    found = [str(one) for one in check.check(toy.root, check.newest, doing).problems]
    assert len(found) == 1
    assert "built again it is sha256:" in found[0]
    assert f"moet image verify {R2} names what differs" in found[0]
    monkeypatch.setenv("TOY_FAILS", "1")
    found = [str(one) for one in check.check(toy.root, check.newest, doing).problems]
    assert len(found) == 1
    assert "cannot be built again: bazel build" in found[0]
    assert toy.git("worktree", "list").count("\n") == 0
    assert list((tmp_path / "home").rglob("moet-release-*")) == []


def test_the_verb(toy: Toy) -> None:
    good = killer.run(0, "tools.moet.main", ["release", "check"], toy.root)
    assert (good.status, good.output) == (0, "")
    assert "2 releases, everything holds" in good.errors
    toy.edit("CHANGELOG.md", "- 94 tests", "- 95 tests")
    bad = killer.run(0, "tools.moet.main", ["release", "check"], toy.root)
    assert bad.status == 1
    number = line_of(toy, "- 95 tests")
    assert bad.output == (
        f"CHANGELOG.md:{number}: {R1}: the figure 95 is not in the output of the receipt it links to\n"
    )
    told = killer.run(0, "tools.moet.main", ["release", "check", "--json"], toy.root)
    document = json.loads(told.output)
    assert (told.status, document["schema"]) == (1, "moet.release-check.v1")
    assert [problem["line"] for problem in document["problems"]] == [number]
