import datetime
import os
from pathlib import Path

import pytest

from releases.testing.toy import Toy
from releases.tree.git import Git, GitError


@pytest.fixture
def git(fresh: Toy) -> Git:
    return Git(fresh.root)


def test_head_branch_and_revisions(fresh: Toy, git: Git) -> None:
    first = fresh.git("rev-parse", "HEAD")
    fresh.write("a b", "1")
    second = fresh.commit("Second")
    assert (git.head(), git.branch()) == (second, "main")
    assert (git.resolve("HEAD~1"), git.resolve("nope"), git.resolve("--all")) == (first, None, None)
    assert git.resolve("0" * 40) is None
    assert (git.is_ancestor(first, second), git.is_ancestor(second, first)) == (True, False)
    assert (git.show(first, "a b"), git.show(second, "a b"), git.show(second, "images")) == (None, b"1", None)
    assert git.revisions("a b") == [second]
    assert git.files(second, "images") == ["images/toy/BUILD.bazel", "images/toy/line.bzl"]
    assert not git.is_shallow()


def test_revisions_has_those_of_merged_branches(fresh: Toy, git: Git) -> None:
    fresh.git("checkout", "-qb", "side")
    fresh.write("x", "1")
    one = fresh.commit("One")
    fresh.git("rm", "-q", "x")
    two = fresh.commit("Two")
    fresh.git("checkout", "-q", "main")
    fresh.commit("Meanwhile")
    fresh.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
    assert git.revisions("x") == [two, one]


def test_dirty_names_every_file(fresh: Toy, git: Git) -> None:
    assert git.dirty() == []
    fresh.write("a\nb", "1")
    fresh.write("new/é", "1")
    fresh.write("bazel-out/x", "ignored")
    fresh.edit("pins.txt", "torch", "tor")
    assert sorted(git.dirty()) == ["a\nb", "new/é", "pins.txt"]


def test_commit_time_is_utc(fresh: Toy, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-29T01:00:00+0300")
    commit = fresh.commit("Then")
    assert git.commit_time(commit) == datetime.datetime(2026, 11, 28, 22, tzinfo=datetime.UTC)


def test_tags_are_made_once(fresh: Toy, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.git("config", "user.name", "somebody")
    fresh.git("config", "user.email", "somebody@example.com")
    first = git.head()
    second = fresh.commit("Second")
    assert git.tag_commit("toy/vllm0.33.0-r1") is None
    git.create_tag("toy/vllm0.33.0-r1", first, "toy")
    git.create_tag("toy/vllm0.33.0-r1", first, "toy again")
    assert git.tag_commit("toy/vllm0.33.0-r1") == first
    with pytest.raises(GitError, match=r"points to .* was expected: tags are never moved"):
        git.create_tag("toy/vllm0.33.0-r1", second, "toy")
    assert git.tag_commit("toy/vllm0.33.0-r1") == first


def test_a_worktree_goes_whatever_happens(fresh: Toy, git: Git, tmp_path: Path) -> None:
    first = git.head()
    fresh.write("later", "")
    fresh.commit("Later")

    def used() -> None:
        with git.worktree(first, tmp_path) as folder:
            assert Git(folder).head() == first
            assert not (folder / "later").exists()
            (folder / "made").write_text("")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        used()
    assert os.listdir(tmp_path) == ["toy"]
    assert fresh.git("worktree", "list").count("\n") == 0


def test_a_worktree_of_no_commit(git: Git) -> None:
    with pytest.raises(GitError, match=r"git worktree: .*invalid reference"), git.worktree("0" * 40):
        pass


def test_a_hook_s_variables_name_no_other_repository(fresh: Toy, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = git.head()
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert git.head() == expected
    assert git.dirty() == []


def test_no_git(fresh: Toy, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh.root))
    with pytest.raises(GitError, match="git is not on PATH"):
        git.head()
