"""Locks: the wheel that is chosen, the file that is written, the words when something is gone."""

import tomllib
from pathlib import Path

import pytest

from third_party.locking import difference
from third_party.python import lock, lockfile, resolve, wheels

ENTRY = lockfile.Entry("1.0", "a-1.0-py3-none-any.whl", "00", 10, ("b",))


def offer(*names: str) -> list[dict[str, str]]:
    return [{"url": f"https://index/{name}"} for name in names]


def chosen(*names: str, glibc: str = "2.36") -> str | None:
    best = wheels.best(offer(*names), wheels.ranking("3.11", glibc))
    return wheels.file_name(best["url"]) if best else None


def test_newest_loadable_glibc_wins() -> None:
    old = "a-1-cp311-cp311-manylinux2014_x86_64.whl"
    new = "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"
    too_new = "a-1-cp311-cp311-manylinux_2_39_x86_64.whl"
    assert chosen(old, new, too_new) == new
    assert chosen(old, new, too_new, glibc="2.17") == old


def test_specific_wheel_wins() -> None:
    abi3 = "a-1-cp38-abi3-manylinux_2_28_x86_64.whl"
    pure = "a-1-py3-none-any.whl"
    exact = "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert chosen(pure, abi3, exact) == exact
    assert chosen(pure, abi3) == abi3


def test_foreign_wheels_are_not_chosen() -> None:
    assert chosen("a-1-cp312-cp312-manylinux_2_28_x86_64.whl", "a-1-cp311-cp311-win_amd64.whl") is None


def test_file_name_is_unquoted() -> None:
    url = "https://index/a/torch-2.0%2Bcpu-py3-none-any.whl#sha256=0"
    assert wheels.file_name(url) == "torch-2.0+cpu-py3-none-any.whl"


def test_missing_wheel_names_the_package() -> None:
    closure = {"python": "3.11", "glibc": "2.36"}
    locked = {"package": [{"name": "a", "version": "1", "wheels": offer("a-1-cp312-cp312-win_amd64.whl")}]}
    with pytest.raises(lock.LockError, match="a 1 has no wheel"):
        lock.entries(locked, closure)


def test_requirements_follow_markers() -> None:
    wheel = {**offer("a-1-py3-none-any.whl")[0], "hash": "sha256:00", "size": 5}
    dependencies = [
        {"name": "b"},
        {"name": "c", "marker": "sys_platform == 'win32'"},
        {"name": "d", "marker": "python_version < '3.12'"},
    ]
    locked = {"package": [{"name": "a", "version": "1", "wheels": [wheel], "dependencies": dependencies}]}
    assert lock.entries(locked, {"python": "3.11", "glibc": "2.36"})["a"].requires == ("b", "d")


def test_lock_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "x.lock.bzl"
    entries = {"b": lockfile.Entry("2", "b-2-py3-none-any.whl", "11", 5, ()), "a": ENTRY}
    lockfile.write(path, "x", entries)
    assert lockfile.read(path) == entries
    assert list(lockfile.read(path)) == ["a", "b"]
    assert list(tmp_path.iterdir()) == [path]


def test_difference_counts_and_sizes() -> None:
    after = {"a": lockfile.Entry("1.1", "f", "01", 30, ("b",)), "c": ENTRY}
    changes = difference.between({"a": ENTRY, "b": ENTRY}, after)
    assert [(c.name, c.before, c.after, c.size_after - c.size_before) for c in changes] == [
        ("a", "1.0", "1.1", 20), ("b", "1.0", None, -10), ("c", None, "1.0", 10),
    ]  # fmt: skip
    assert "3 changed" in difference.as_table("x", changes, after)


def test_unknown_closure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    assert lock.main(["nothing"]) == 2
    assert capsys.readouterr().err == "nothing: no such closure; expected one of dsv41, tools\n"


def test_no_solution_is_an_error(tmp_path: Path) -> None:
    requirements = ["a @ file:///nonexistent/a.whl"]
    closure = {"python": "3.11", "requirements": requirements, "constraints": []}
    with pytest.raises(lock.LockError, match="uv cannot resolve"):
        lock.resolve(closure)


def test_locks_hold_what_the_closures_ask(tmp_path: Path) -> None:
    for name in ("dsv41", "tools"):
        closure = tomllib.loads(Path(f"third_party/python/{name}.toml").read_text())
        locked = lockfile.read(Path(f"third_party/python/{name}.lock.bzl"))
        for requirement in closure["requirements"]:
            project, _, version = requirement.partition("==")
            assert not version or locked[project].version == version
        for entry in locked.values():
            assert all(other in locked for other in entry.requires)


LOG = """
  Skipping link: none of the wheel's tags (cp38) are compatible (run pip debug): https://index/x/a-1-cp38.whl (from https://index/simple/a/)
  Found link https://index/y/a-2%2Bcpu-py3-none-any.whl#sha256=00 (from https://index/simple/a/), version: 2
a (2)
Available versions: 2, 1
"""


def test_address_of_a_file_that_pip_would_skip() -> None:
    assert resolve.find(LOG, "a-1-cp38.whl") == "https://index/x/a-1-cp38.whl"
    assert resolve.find(LOG, "a-2+cpu-py3-none-any.whl") == "https://index/y/a-2%2Bcpu-py3-none-any.whl"
    assert resolve.find(LOG, "a-3.whl") is None


def test_what_is_offered_instead() -> None:
    assert resolve.missing(LOG, "a", "3", "a-3.whl") == "a-3.whl: the index no longer offers a 3; it offers 2, 1."
    assert "has a 2, but not this file" in resolve.missing(LOG, "a", "2", "a-2-win.whl")
    unreachable = "Could not fetch URL https://index/b/: a problem (Caused by SSLError('self-signed')) - skipping"
    assert "could not ask the index for b: SSLError('self-signed')" in resolve.missing(unreachable, "b", "1", "b-1.whl")
    assert "no release of b" in resolve.missing("ERROR: No matching distribution found for b", "b", "1", "b-1.whl")
