"""`moet patch ...` as a person runs it, on a small tree with an index of its own."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from patches.engine.fake_wheel import make_wheel
from patches.engine.judge import judge
from patches.engine.series import load_series
from patches.engine.wheel import Wheel
from patches.tools import fake_index
from patches.tools.fake_tree import FILES, LINES, make_tree, replaced
from tools.moet import main

X = "demo/x.py"
# In 2.0 `first` conflicts and `second`, which waits for it, would do; in 3.0 all have moved by a line.
TWO = {**FILES, X: replaced(LINES, 5, by="upstream")}
THREE = {path: data if path.endswith("envs.py") else b"new = 1\n" + data for path, data in FILES.items()}

# Python that ends its process by SIGKILL at its n-th fsync.
KILLER = """
import os, signal
left, sync = [{n}], os.fsync
def fsync(descriptor):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = fsync
"""

# Python that says "held" at each fsync, and goes on when its stdin ends.
HOLDER = """
import os
sync = os.fsync
def fsync(descriptor):
    print("held", flush=True)
    sys.stdin.read()
    sync(descriptor)
os.fsync = fsync
"""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[fake_index.Index]:
    offered = tmp_path / "index/demo"
    offered.mkdir(parents=True)
    make_wheel(offered, TWO, "demo-2.0")
    make_wheel(offered, THREE, "demo-3.0")
    with fake_index.serve(tmp_path / "index") as served:
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


Moet = Callable[..., tuple[int, str, str]]


@pytest.fixture
def moet(
    tmp_path: Path,
    root: Path,
    index: fake_index.Index,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Moet:
    """Runs `moet patch` in the tree: exit status, stdout and stderr."""
    wanted = fake_index.environment(index, tmp_path / "cache")
    for name in [name for name in os.environ if name not in wanted]:
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(root)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        status = main.main(["patch", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def sound(root: Path, folder: Path, wheel: Path | None = None) -> bool:
    with Wheel(wheel or root.parent / "base/external/pypi_line_demo/demo-1.0-py3-none-any.whl") as opened:
        return judge(load_series(folder), opened).ok


def test_the_way_of_a_new_patch(moet: Moet, root: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    status, out, _ = moet("new", "third", "demo/y.py", "--switch", "none", "--to", work)
    assert status == 0
    assert out.splitlines()[-1] == (
        f"edit them, fill in HEADER, then: moet patch refresh third --series demo-1.0 --from {work}"
    )
    assert "Switch: none" in (work / "HEADER").read_text()
    (work / "demo/y.py").write_bytes(replaced((work / "demo/y.py").read_bytes(), 35))
    status, out, _ = moet("refresh", "third", "--from", work)
    assert status == 0
    assert "  header: field Description is empty: fill it in" in out.splitlines()
    status, out, _ = moet("lint")
    assert status == 3
    assert "third.patch: has no test: expected patches/demo-1.0/tests/test_third.py" in out
    assert "third.patch: field Reason is empty: fill it in" in out
    (root / "patches/demo-1.0/tests/test_third.py").write_text("")
    header = work / "HEADER"
    text = header.read_text().replace("TODO: upstreaming | cannot be upstreamed | incompatible", "upstreaming")
    header.write_text(text.replace("Description: TODO", "Description: x").replace("Drop-When: TODO", "Drop-When: x"))
    assert moet("refresh", "third", "--from", work)[0] == 0
    status, out, _ = moet("lint")
    assert (status, out.splitlines()[0]) == (
        3,
        "third.patch: no step of line has it: add it to step third in images/line/line.bzl",
    )
    line = root / "images/line/line.bzl"
    more = "        step(number = 3, name = 'third', patches = ['third.patch'], switch = None),\n    ],\n)"
    line.write_text(line.read_text().replace("    ],\n)", more))
    assert moet("lint")[0] == 0


def test_new_knows_the_switch_of_a_step_that_is_there(moet: Moet, tmp_path: Path) -> None:
    assert moet("new", "more", "--step", "first", "--to", tmp_path / "a")[0] == 0
    assert "Switch: VLLM_MOET_FIRST" in (tmp_path / "a/HEADER").read_text()
    status, _, err = moet("new", "more", "--step", "first", "--switch", "VLLM_MOET_OTHER", "--to", tmp_path / "b")
    assert (status, err) == (1, "moet patch new: step first has the switch VLLM_MOET_FIRST: a step has one\n")
    assert not (tmp_path / "b").exists()


def test_refresh_edits_and_renews(moet: Moet, root: Path, tmp_path: Path) -> None:
    place = root / "patches/demo-1.0"
    before = content(place)
    assert moet("refresh", "second")[1] == f"{place}/second.patch: unchanged\n"
    assert moet("refresh", "second.patch", "demo/envs.py", "--edit", tmp_path / "w")[0] == 0
    assert content(place) == before
    assert sorted(content(tmp_path / "w")) == ["HEADER", "demo/envs.py", X, "demo/y.py"]
    (tmp_path / "w" / X).write_bytes(replaced((tmp_path / "w" / X).read_bytes(), 32))
    assert moet("refresh", "second", "--from", tmp_path / "w")[1] == f"{place}/second.patch: renewed\n"
    assert b"+number_32 = other(32)" in (place / "second.patch").read_bytes()
    assert sound(root, place)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "01-x"], "'01-x.patch' is no patch name"),
        (["new", "x", "demo/none.py"], "demo/none.py: no such file in demo-1.0-py3-none-any.whl"),
        (["new", "x", "--switch", "nope"], "Switch: 'nope' is neither VLLM_MOET_<NAME> nor none"),
        (["new", "x", "--step", "Nope"], "Step: 'Nope' is no step name"),
        (["new", "x", "--like", "nowhere.patch"], "nowhere.patch: cannot be read (No such file or directory)"),
        (["new", "x", "demo/x.py", "--like", "bazelw"], "--like brings files, step and switch with it"),
        (["new", "x", "--like", "bazelw"], "holds no diff"),
        (["refresh", "x"], "x.patch: not listed in series"),
        (["refresh", "second", "demo/x.py"], "FILE goes with --edit DIR"),
        (["show", "x"], "x.patch: not in patches/demo-1.0: it has first.patch, second.patch"),
        (["lint", "--line", "other"], "other: no such line with patches: expected one of line"),
        (["doctor", "--to", "9.9"], "demo 9.9: no wheel of it for CPython 3.11 on x86-64 Linux is offered; there are"),
        (["doctor", "--to", "2.0", "--to", "3.0", "--write", "x"], "--write needs a single --to"),
        (["doctor", "--to", "2.0", "--write", "images"], "images: exists already: remove it or name another folder"),
        (["doctor", "--to", "none.whl"], "none.whl: no such wheel"),
        (["doctor", "--to", "2.0", "--manifest", "bazelw"], "bazelw: is no manifest of Moet's"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(moet: Moet, root: Path, arguments: list[str], message: str) -> None:
    before = content(root)
    status, out, err = moet(*arguments)
    assert (status, out) == (1, "")
    (line,) = [line for line in err.splitlines() if line.startswith("moet patch")]
    assert message in line
    assert content(root) == before


def test_show_is_the_series_in_order(moet: Moet) -> None:
    status, out, _ = moet("show")
    rows = [line.split() for line in out.splitlines() if ".patch" in line]
    assert status == 0
    assert rows[0][:6] == ["1", "first.patch", "1", "first", "VLLM_MOET_FIRST", "(1)"]
    assert rows[0][6:] == ["+3", "-1", "2", "1", "2026-11-29"]
    assert rows[1][:5] == ["2", "second.patch", "2", "second", "none"]


def test_show_of_one_patch_is_all_of_it(moet: Moet, root: Path) -> None:
    _, out, _ = moet("show", "second")
    assert out.endswith((root / "patches/demo-1.0/second.patch").read_text())
    assert "file: demo/y.py +1 -1" in out


def test_doctor_says_all_in_one_report(moet: Moet) -> None:
    status, out, _ = moet("doctor", "--to", "2.0")
    assert status == 3
    for expected in (
        "demo 1.0 -> 2.0\n",
        "first.patch    1 first    conflict                conflict",
        "second.patch   2 second   waits for first.patch   clean",
        "first.patch: conflict\n  step 1 first (line), switch VLLM_MOET_FIRST, default 1\n"
        "  tests: patches/demo-1.0/tests/test_first.py\n  drop when: upstream does it\n"
        "  demo/envs.py: clean\n  demo/x.py: conflict\n"
        "    hunk 1 (patch line 28): conflict; upstream there, 1.0 -> 2.0:\n      @@ -2,7 +2,7 @@\n",
        "      -number_5 = compute(5)\n      +number_5 = upstream(5)\n",
        "second.patch: waits for first.patch; independent of it: clean\n",
        "touched by several steps: demo/x.py: first (first.patch), second (second.patch)\n",
    ):
        assert expected in out, out
    assert out.endswith("demo 2.0: 2 patches: 1 waits, 1 conflict; needs work\n")


def test_doctor_is_content_with_offsets(moet: Moet) -> None:
    status, out, _ = moet("doctor", "--to", "3.0")
    assert status == 0
    assert "demo/x.py: offset +1" in out
    assert out.endswith("2 patches: 2 offset; moet patch refresh or --write renews the line numbers\n")


def test_doctor_of_several_versions_ends_with_the_worst(moet: Moet, root: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, FILES, "demo-1.1")
    status, out, _ = moet("doctor", "--to", "3.0", "--to", "2.0", "--to", wheel, "--json")
    report: dict[str, Any] = json.loads(out)
    assert status == 3
    assert "schema" in report and report["schema"] == "moet.patch-doctor.v1"
    assert [one["version"] for one in report["versions"]] == ["3.0", "2.0", "1.1"]
    assert [one["needs_work"] for one in report["versions"]] == [False, True, False]
    first, second = report["versions"][1]["patches"]
    assert (first["verdict"], second["verdict"], second["own"], second["waits_for"]) == (
        "conflict",
        "waits",
        "clean",
        ["first.patch"],
    )
    assert first["steps"][0]["number"] == 1
    assert first["files"][1]["hunks"][0]["upstream_change"][0] == "@@ -2,7 +2,7 @@"
    assert report["versions"][2]["wheel"]["file"] == wheel.name
    assert report["written"] is None


def test_doctor_of_another_project_is_refused(moet: Moet, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, FILES, "other-1.1")
    status, _, err = moet("doctor", "--to", wheel)
    assert status == 1
    assert "is a wheel of other, but the series is for demo" in err


def test_write_is_the_series_for_that_version(moet: Moet, root: Path, index: fake_index.Index) -> None:
    target = root / "patches/demo-3.0"
    status, out, _ = moet("doctor", "--to", "3.0", "--write", target)
    assert status == 0
    assert f"wrote {target}: 2 of 2 patches\n  renewed: first.patch (offset)\n" in out
    assert sorted(content(target)) == [
        "BUILD.bazel",
        "first.patch",
        "second.patch",
        "series",
        "tests/test_first.py",
        "tests/test_second.py",
    ]
    assert sound(root, target, index.folder / "demo/demo-3.0-py3-none-any.whl")


def test_what_was_left_out_is_taken_up_again(
    moet: Moet, root: Path, index: fake_index.Index, tmp_path: Path
) -> None:
    target = root / "patches/demo-2.0"
    status, out, _ = moet("doctor", "--to", "2.0", "--write", target)
    follow = "moet patch new first --series demo-2.0 --like patches/demo-1.0/first.patch"
    assert status == 3
    assert f"  left out: first.patch: conflict on 2.0; {follow}\n" in out
    assert (target / "series").read_text() == "# order\n# left out: first.patch (conflict on 2.0)\nsecond.patch\n"
    lock = root / "third_party/python/line.lock.bzl"
    wheel = index.folder / "demo/demo-2.0-py3-none-any.whl"
    with Wheel(wheel) as opened:
        text = lock.read_text().replace("'version': '1.0'", "'version': '2.0'").replace("demo-1.0", "demo-2.0")
        old = text.split("'sha256': '")[1][:64]
        lock.write_text(text.replace(old, opened.sha256))
    status, out, _ = moet(*follow.split()[2:], "--to", tmp_path / "w")
    assert status == 0
    assert "  left out: the hunk on patch line 28, for line 2" in out.splitlines()
    edited = tmp_path / "w" / X
    edited.write_bytes(edited.read_bytes().replace(b"upstream(5)", b"other(5)"))
    assert moet("refresh", "first", "--series", "demo-2.0", "--from", tmp_path / "w")[0] == 0
    assert (target / "series").read_text() == "# order\nfirst.patch\nsecond.patch\n"
    assert sound(root, target, wheel)


def test_killed_anywhere_in_a_write_there_is_all_or_nothing(
    moet: Moet, root: Path, index: fake_index.Index, tmp_path: Path
) -> None:
    target = root / "patches/demo-3.0"
    arguments = ("patch", "doctor", "--tree", root, "--to", "3.0", "--write", target)
    moet("doctor", "--to", "3.0")
    killed = 0
    for at in range(1, 100):
        with fake_index.start(index, tmp_path / "cache", *arguments, before=KILLER.format(n=at)) as running:
            running.communicate()
        if running.returncode != -signal.SIGKILL:
            break
        killed += 1
        if target.exists():
            break
    assert killed >= 6
    assert sound(root, target, index.folder / "demo/demo-3.0-py3-none-any.whl")
    assert len(content(target)) == 6
    assert not list(target.parent.glob(".*"))


def test_killed_anywhere_in_a_refresh_a_repeat_ends_well(
    moet: Moet, root: Path, index: fake_index.Index, tmp_path: Path
) -> None:
    place, work = root / "patches/demo-1.0", tmp_path / "w"
    moet("new", "third", "demo/y.py", "--switch", "none", "--to", work)
    (work / "demo/y.py").write_bytes(replaced((work / "demo/y.py").read_bytes(), 35))
    header = (place / "second.patch").read_text().split("\n\n")[0]
    (work / "HEADER").write_text(header.replace("Step: second", "Step: third"))
    before = content(place)
    arguments = ("patch", "refresh", "third", "--tree", root, "--from", work)
    for at in range(1, 100):
        for path in ("series", "third.patch"):
            (place / path).unlink(missing_ok=True)
        (place / "series").write_bytes(before["series"])
        with fake_index.start(index, tmp_path / "cache", *arguments, before=KILLER.format(n=at)) as running:
            running.communicate()
        series = (place / "series").read_text()
        assert series in (before["series"].decode(), before["series"].decode() + "third.patch\n")
        assert moet("refresh", "third", "--from", work)[0] == 0
        assert sound(root, place)
        assert not list(place.glob(".*"))
        if running.returncode != -signal.SIGKILL:
            break
    assert at > 3


def test_two_writers_of_one_series_take_turns(
    moet: Moet, root: Path, index: fake_index.Index, tmp_path: Path
) -> None:
    work = tmp_path / "w"
    moet("new", "third", "demo/y.py", "--switch", "none", "--to", work)
    (work / "demo/y.py").write_bytes(replaced((work / "demo/y.py").read_bytes(), 35))
    arguments = ("patch", "refresh", "third", "--tree", root, "--from", work)
    with fake_index.start(index, tmp_path / "cache", *arguments, before=HOLDER) as first:
        assert first.stdout is not None and first.stdin is not None
        assert first.stdout.readline() == "held\n"
        with fake_index.start(index, tmp_path / "cache", *arguments) as second:
            assert second.stderr is not None
            assert f"waiting for process {first.pid}" in second.stderr.readline()
            first.stdin.close()
            said, _ = second.communicate()
        first.wait()
    assert said.splitlines()[0].endswith("third.patch: unchanged")
    assert (root / "patches/demo-1.0/series").read_text().count("third.patch") == 1


def test_two_writers_of_one_folder_make_it_once(
    moet: Moet, root: Path, index: fake_index.Index, tmp_path: Path
) -> None:
    target = root / "patches/demo-3.0"
    moet("doctor", "--to", "3.0")
    arguments = ("patch", "doctor", "--tree", root, "--to", "3.0", "--write", target)
    with fake_index.start(index, tmp_path / "cache", *arguments, before=HOLDER) as first:
        assert first.stdout is not None and first.stdin is not None
        assert "held\n" in first.stdout
        with fake_index.start(index, tmp_path / "cache", *arguments) as second:
            assert second.stderr is not None
            assert any(f"waiting for process {first.pid}" in line for line in second.stderr)
            first.stdin.close()
            _, err = second.communicate()
        first.wait()
    assert (first.returncode, second.returncode) == (0, 1)
    assert err.endswith(f"{target}: exists already: remove it or name another folder\n")
    assert sound(root, target, index.folder / "demo/demo-3.0-py3-none-any.whl")
