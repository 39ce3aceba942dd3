import contextlib
import hashlib
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from releases.checking import check
from releases.cutting import cut, journal
from releases.record import Record
from releases.testing.toy import R0, R1, R2, Toy, silent
from releases.tree.git import Git
from tests.faults import killer
from tools.cli.errors import UserError
from tools.files import lock

UNRELEASED = "## [Unreleased]\n\n### toy\n\n#### Added\n\n- Step 1, tiers: more tiers.\n"


def state(toy: Toy) -> dict[str, str]:
    """Every file of the tree that git knows or would, by its hash."""
    paths = toy.git("ls-files", "--cached", "--others", "--exclude-standard").split("\n")
    return {path: hashlib.sha256((toy.root / path).read_bytes()).hexdigest() for path in paths}


def refused(toy: Toy, says: str, base: bool = False, line: str = "toy") -> None:
    before = state(toy)
    with pytest.raises(UserError, match=says) as caught:
        cut.cut(toy.root, line, base=base, doing=silent, note=lambda _: None)
    assert "\n" not in str(caught.value)
    assert state(toy) == before
    assert not cut.journal_file(Git(toy.root)).exists()


def test_cut_writes_entry_record_and_next_number(fresh: Toy) -> None:
    fresh.edit("CHANGELOG.md", "## [Unreleased]\n", UNRELEASED)
    commit = fresh.commit("Words")
    done = fresh.cut()
    entry = fresh.changelog.entries[0]
    record = Record.read(fresh.root / "releases/records", R1)
    assert record is not None
    assert entry == done.entry
    assert (entry.tag, entry.commit, entry.digest, entry.image_id) == (R1, commit, record.digest, record.image_id)
    assert (entry.steps, entry.follows, entry.rollback) == (((1, "tiers"), (2, "next")), None, None)
    assert entry.rollback_switches == (("VLLM_MOET_TIERS", "0"),)
    assert record.moet.tag == str(R1)
    assert "release = 2," in fresh.read("images/toy/line.bzl")
    assert fresh.changelog.unreleased == {}
    bullets = [bullet.text for bullet in entry.sections["Added"]]
    assert bullets[0] == "Step 1, tiers: more tiers."
    assert bullets[1].startswith("Step 2, next: TODO:")
    assert sorted(Git(fresh.root).dirty()) == sorted(done.written)
    assert not done.resumed


def test_cut_base_leaves_the_number_and_unreleased(fresh: Toy) -> None:
    fresh.edit("CHANGELOG.md", "## [Unreleased]\n", UNRELEASED)
    fresh.commit("Words")
    done = fresh.cut(base=True)
    assert (done.entry.tag, done.entry.steps) == (R0, ())
    assert "release = 1," in fresh.read("images/toy/line.bzl")
    assert list(fresh.changelog.unreleased) == ["toy"]


def test_what_the_draft_says_of_a_later_release(toy: Toy) -> None:
    toy.line(2, {2: "next", 3: "third"})
    toy.write("patches/next.patch", "another\n")
    toy.write("pins.txt", "torch 2.15.0\nnumpy 2.0\n")
    toy.commit("Work")
    entry = toy.cut().entry
    assert (entry.tag, entry.follows, entry.rollback) == (R2, R1, R1)
    assert entry.summary == "vllm 0.33.0; added step 3; retired step 1; changed step 2."
    texts = {name: [bullet.text for bullet in bullets] for name, bullets in entry.sections.items()}
    assert texts["Added"] == [
        "Step 3, third: TODO: what it does. Without it: Without third, requests fail. Off: `VLLM_MOET_THIRD=0`."
    ]
    assert texts["Removed"] == ["Step 1, tiers: TODO: why it could go (drop when: upstream has tiers)"]
    assert texts["Changed"] == [
        "Step 2, next: TODO: what is different (patch next.patch)",
        "Wheels: numpy 2.0 (new), torch 2.14.0 -> 2.15.0.",
    ]


def test_a_new_base_needs_no_words_for_patches_made_anew(toy: Toy) -> None:
    toy.base("0.34.0")
    toy.line(1, {1: "tiers", 2: "next"})
    toy.write("patches/tiers.patch", "at another line\n")
    toy.commit("vLLM 0.34.0")
    entry = toy.cut().entry
    assert (str(entry.tag), entry.follows) == ("toy:vllm0.34.0-r1", R1)
    texts = [bullet.text for bullet in entry.sections["Changed"]]
    assert "Step 1, tiers: made anew for vllm 0.34.0." in texts
    assert "vllm 0.33.0 -> 0.34.0." in texts
    assert not any("TODO" in text for text in texts)
    toy.settle()
    toy.commit("Release")
    assert check.check(toy.root).problems == ()


def test_an_image_without_a_difference_wants_words(toy: Toy) -> None:
    entry = toy.cut().entry
    assert [bullet.text for bullet in entry.sections["Changed"]] == [
        "TODO: what is different (layers that differ: manifest.layer)"
    ]


def test_refuses_a_tree_with_changes(toy: Toy) -> None:
    toy.write("a.txt", "")
    toy.edit("bazelw", "import os", "import os ")
    refused(toy, r"has changes.*commit or remove bazelw, a\.txt$")


def test_refuses_a_detached_head(toy: Toy) -> None:
    toy.git("checkout", "--quiet", "--detach")
    refused(toy, "without a branch")


def test_refuses_a_folder_without_commits(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(UserError, match="no commit is checked out"):
        cut.cut(tmp_path, "toy", base=False, doing=silent, note=lambda _: None)


def test_refuses_a_tag_that_is_released(toy: Toy) -> None:
    toy.edit("images/toy/line.bzl", "release = 2", "release = 1")
    toy.commit("Back")
    refused(toy, r"toy:vllm0\.33\.0-r1: is released already; .*set release = 2 in images/toy/line\.bzl \(CHANGELOG")
    refused(toy, r"toy:vllm0\.33\.0-r0: is released already \(CHANGELOG", base=True)


def test_refuses_a_tag_that_only_a_record_or_git_has(toy: Toy) -> None:
    toy.write("releases/records/toy/vllm0.33.0-r2/image.json", "")
    toy.commit("Record")
    refused(toy, "releases/records/toy/vllm0.33.0-r2 exists")
    toy.git("rm", "-rq", "releases/records/toy/vllm0.33.0-r2")
    toy.commit("No record")
    toy.git("tag", R2.git)
    refused(toy, r"git tag toy/vllm0\.33\.0-r2 exists")


def test_refuses_a_line_that_is_none(toy: Toy) -> None:
    refused(toy, "images/nope/line.bzl: does not exist", line="nope")


def test_refuses_a_changelog_that_cannot_be_read(toy: Toy) -> None:
    toy.edit("CHANGELOG.md", "- Digest: ", "- Digets: ")
    toy.commit("Broken")
    with pytest.raises(UserError, match=r"CHANGELOG\.md:\d+: '- Digets|expected '- FIELD"):
        toy.cut()


def test_refuses_what_does_not_build(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_FAILS", "1")
    refused(toy, r"bazel build --config=release //images/toy:toy failed with exit status 1")


def test_refuses_an_image_that_is_not_stamped(toy: Toy) -> None:
    toy.edit("bazelw", '"--config=release" in sys.argv', "False")
    toy.commit("No stamp")
    refused(toy, r"built toy:vllm0\.33\.0-r2-dev of no commit, toy:vllm0\.33\.0-r2 of [0-9a-f]{40} was expected")


def test_refuses_when_another_commit_came_while_it_was_built(toy: Toy) -> None:
    line = 'subprocess.run(["git", "-C", root, "commit", "-qm", "later", "--allow-empty"])\n'
    toy.edit("bazelw", "if command ==", f"if command == 'info': {line}if command ==")
    toy.commit("Races")
    toy.git("config", "user.name", "somebody")
    toy.git("config", "user.email", "somebody@example.com")
    refused(toy, "another commit was checked out while")


def test_refuses_without_the_record_of_the_release_before(toy: Toy) -> None:
    toy.git("rm", "-rq", "releases/records/toy/vllm0.33.0-r1")
    toy.commit("Lost")
    refused(toy, r"follows toy:vllm0\.33\.0-r1, but releases/records/toy/vllm0\.33\.0-r1 is missing")


def command(*words: str) -> list[str]:
    return ["release", "cut", "toy", *words]


def test_killed_anywhere_and_repeated_it_is_whole(toy: Toy, tmp_path: Path) -> None:
    whole = Toy.copied(toy.root, tmp_path / "whole")
    events = killer.events("tools.moet.main", command(), whole.root)
    expected = state(whole)
    tagged = check.check(whole.root).problems
    for at in range(1, len(events) + 1):
        one = Toy.copied(toy.root, tmp_path / f"killed{at}")
        before = state(one)
        outcome = killer.run(at, "tools.moet.main", command(), one.root)
        assert outcome.killed, (at, outcome)
        pending = cut.journal_file(Git(one.root)).exists()
        if not pending and state(one) != expected:
            assert state(one) == before, (at, events[at - 1])
        if pending:
            found = check.check(one.root).problems
            assert any("was interrupted: moet release cut toy finishes it" in str(problem) for problem in found)
        if state(one) == before or pending:
            again = killer.run(0, "tools.moet.main", command(), one.root)
            assert again.status == 0, (at, events[at - 1], again.errors)
        assert state(one) == expected, (at, events[at - 1])
        assert check.check(one.root).problems == tagged
        assert list((one.root / ".git/moet").glob("*")) == [cut.lock_file(Git(one.root))]


def test_an_interrupted_cut_is_finished_before_another(toy: Toy) -> None:
    interrupt(toy)
    with pytest.raises(UserError, match="has changes"):
        toy.cut(base=True)
    assert toy.changelog.entries[0].tag == R2


def test_an_interrupted_cut_of_the_same_line_is_all(toy: Toy) -> None:
    interrupt(toy)
    said: list[str] = []
    done = toy.cut(note=said.append)
    assert (done.resumed, done.entry.tag) == (True, R2)
    assert said == ["finished the cut of toy:vllm0.33.0-r2, which was interrupted"]


def test_an_interrupted_cut_touches_nothing_that_was_changed_since(toy: Toy) -> None:
    interrupt(toy)
    toy.write("CHANGELOG.md", "mine")
    with pytest.raises(UserError, match=r"CHANGELOG\.md: was changed after the cut of .*-r2 was begun and not ended"):
        toy.cut()
    assert toy.read("CHANGELOG.md") == "mine"


def test_an_interrupted_cut_is_not_finished_on_another_branch(toy: Toy) -> None:
    toy.commit("Later")
    interrupt(toy)
    toy.git("checkout", "--quiet", "-b", "other", "HEAD~1")
    before = state(toy)
    with pytest.raises(UserError, match="go back to that commit and run this again to finish it, or give it up"):
        toy.cut()
    assert state(toy) == before


def test_a_journal_that_is_not_ours(toy: Toy) -> None:
    path = cut.journal_file(Git(toy.root))
    for text in ("", "[]", '{"schema": "moet.journal.v2"}', '{"schema": "moet.journal.v1", "files": 3}'):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        with pytest.raises(UserError, match="is no journal of this version of moet"):
            toy.cut()
        assert any("is no journal" in str(one) for one in check.check(toy.root).problems)


def interrupt(toy: Toy) -> None:
    """Leaves a cut of r2 that was killed when its journal was written and nothing else."""
    path = cut.journal_file(Git(toy.root))
    written = journal.finish

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    journal.finish = killed  # type: ignore[assignment]
    try:
        with pytest.raises(KilledError):
            toy.cut()
    finally:
        journal.finish = written
    assert path.exists()


def test_a_second_cut_waits_for_the_first(toy: Toy) -> None:
    said: list[str] = []
    with contextlib.ExitStack() as held:
        held.enter_context(lock.exclusive(cut.lock_file(Git(toy.root))))

        def waiting(text: str) -> None:
            said.append(text)
            held.close()

        assert toy.cut(note=waiting).entry.tag == R2
    assert len(said) == 1
    assert said[0].startswith(f"waiting for process {os.getpid()}, which holds ")


def test_two_at_once_cut_one_release(toy: Toy) -> None:
    results = together(toy, 2)
    assert sorted(outcome.status for outcome in results) == [0, 1]
    loser = next(outcome for outcome in results if outcome.status == 1)
    assert "has changes, a release is of a commit" in loser.errors
    assert [entry.tag for entry in toy.changelog.entries] == [R2, R1, R0]
    assert "release = 3," in toy.read("images/toy/line.bzl")


def together(toy: Toy, count: int) -> list[killer.Outcome]:
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(killer.run, 0, "tools.moet.main", command(), toy.root) for _ in range(count)]
        return [one.result() for one in waiting]


def test_the_verb_says_what_comes_next(toy: Toy) -> None:
    shown = killer.run(0, "tools.moet.main", command(), toy.root)
    assert shown.status == 0, shown.errors
    assert "digest    sha256:" in shown.output
    assert "1. moet release receipt --tag toy:vllm0.33.0-r2 --in-commit" in shown.output
    toy.settle()
    toy.commit("Release")
    told = killer.run(0, "tools.moet.main", [*command(), "--json"], toy.root)
    document = json.loads(told.output)
    assert (document["schema"], document["tag"]) == ("moet.release-cut.v1", "toy:vllm0.33.0-r3")
