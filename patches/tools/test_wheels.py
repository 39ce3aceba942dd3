import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from patches.engine.errors import PatchError
from patches.engine.fake_wheel import make_wheel
from patches.tools import fake_index, place, wheels
from patches.tools.fake_tree import FILES, LINES, make_tree, replaced
from tools.cli.output import Output

X = "demo/x.py"
OTHER = {**FILES, X: replaced(LINES, 5, by="upstream")}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[fake_index.Index]:
    """An index that offers demo 1.0 and 2.0."""
    offered = tmp_path / "index/demo"
    offered.mkdir(parents=True)
    make_wheel(offered, FILES)
    make_wheel(offered, OTHER, "demo-2.0")
    with fake_index.serve(tmp_path / "index") as served:
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, index: fake_index.Index, cache: Path) -> None:
    """This process uses the index and the cache."""
    wanted = fake_index.environment(index, cache)
    for name in [name for name in os.environ if name not in wanted]:
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)


def kept(cache: Path) -> list[str]:
    """The wheels in the cache, each with the name that its content gives its folder; and drafts."""
    found = []
    for path in sorted((cache / "moet/wheels").rglob("*")):
        if path.name.endswith(".whl") and ".partial" not in str(path):
            assert path.parent.name == hashlib.sha256(path.read_bytes()).hexdigest()
            found.append(path.name)
        if path.name.endswith(".partial"):
            found.append("draft")
    return found


def without_bazel(root: Path) -> None:
    (root / "bazel-out").unlink()


@pytest.mark.usefixtures("inside")
def test_the_pinned_wheel_of_bazel_needs_no_download(root: Path, index: fake_index.Index, cache: Path) -> None:
    found = place.find(root)
    with wheels.pinned(found, Output()) as wheel:
        assert wheel.sha256 == found.pin.sha256
    assert index.downloads == 0
    assert not cache.exists()


@pytest.mark.usefixtures("inside")
def test_without_bazel_it_is_downloaded_once(root: Path, index: fake_index.Index, cache: Path) -> None:
    without_bazel(root)
    for _ in range(2):
        with wheels.pinned(place.find(root), Output()) as wheel:
            assert wheel.read(X) == LINES
    assert index.downloads == 1
    assert kept(cache) == ["demo-1.0-py3-none-any.whl"]


@pytest.mark.usefixtures("inside")
def test_a_copy_of_bazel_that_was_changed_is_not_used(root: Path, index: fake_index.Index) -> None:
    found = place.find(root)
    copy = root.parent / "base/external/pypi_line_demo" / found.pin.file
    copy.write_bytes(copy.read_bytes() + b"x")
    with wheels.pinned(found, Output()) as wheel:
        assert wheel.sha256 == found.pin.sha256
    assert index.downloads == 1


@pytest.mark.usefixtures("inside")
def test_an_index_with_another_file_than_the_locked_one(root: Path, index: fake_index.Index, cache: Path) -> None:
    without_bazel(root)
    make_wheel(index.folder / "demo", OTHER)
    with pytest.raises(PatchError, match=r"demo 1\.0: the index has another file than the locked one \(sha256 "):
        wheels.pinned(place.find(root), Output())
    assert kept(cache) == []


@pytest.mark.usefixtures("inside")
def test_a_cached_wheel_that_was_changed_is_fetched_again(
    root: Path, index: fake_index.Index, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = place.find(root)
    wheels.published(found, "2.0", Output()).close()
    (path,) = (cache / "moet/wheels").rglob("*.whl")
    path.write_bytes(path.read_bytes()[:-100])
    with wheels.published(found, "2.0", Output()) as wheel:
        assert wheel.read(X) == OTHER[X]
    assert index.downloads == 2
    assert kept(cache) == ["demo-2.0-py3-none-any.whl"]
    assert "its content is not what it was: removed, and fetched again" in re.sub(r"\s+", " ", capsys.readouterr().err)


@pytest.mark.usefixtures("inside")
def test_a_version_that_does_not_exist_names_those_that_do(root: Path, cache: Path) -> None:
    with pytest.raises(PatchError) as error:
        wheels.published(place.find(root), "3.0", Output())
    said = "demo 3.0: no wheel of it for CPython 3.11 on x86-64 Linux is offered; there are 2.0, 1.0"
    assert str(error.value) == said
    assert kept(cache) == []


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("version", ["", "../x", "2.0 --index-url=http://127.0.0.1:1/", "-r", ">=1", "2.0\nother"])
def test_what_is_no_version_never_reaches_pip(root: Path, index: fake_index.Index, version: str) -> None:
    with pytest.raises(PatchError, match="is no version of demo: name one, such as"):
        wheels.published(place.find(root), version, Output())
    assert index.downloads == 0


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    ("cut", "status", "message"),
    [
        (True, None, r"demo 2\.0: (what the index sent is no whole wheel|pip could not download it)"),
        (False, 500, r"demo 2\.0: pip could not ask the index: .*500"),
        (False, 404, r"demo 2\.0: pip could not ask the index: 404"),
    ],
)
def test_an_index_in_trouble_is_one_line_and_leaves_nothing(
    root: Path, index: fake_index.Index, cache: Path, cut: bool, status: int | None, message: str
) -> None:
    index.cut, index.status = cut, status
    with pytest.raises(PatchError, match=message) as error:
        wheels.published(place.find(root), "2.0", Output())
    assert "\n" not in str(error.value)
    assert kept(cache) == []
    index.cut, index.status = False, None
    wheels.published(place.find(root), "2.0", Output()).close()
    assert kept(cache) == ["demo-2.0-py3-none-any.whl"]


@pytest.mark.usefixtures("inside")
def test_a_wheel_of_an_older_platform_and_python_will_do(root: Path, index: fake_index.Index) -> None:
    path = make_wheel(index.folder / "demo", FILES, "demo-0.9")
    path.rename(path.with_name("demo-0.9-cp38-abi3-manylinux1_x86_64.whl"))
    path = make_wheel(index.folder / "demo", FILES, "demo-0.8")
    path.rename(path.with_name("demo-0.8-cp311-cp311-manylinux_2_38_x86_64.whl"))
    for version in ("0.9", "0.8"):
        with wheels.published(place.find(root), version, Output()) as wheel:
            assert wheel.version == version


def test_killed_in_a_download_and_repeated(root: Path, index: fake_index.Index, cache: Path) -> None:
    index.held = True
    arguments = ("patch", "doctor", "--tree", root, "--to", "2.0", "--json")
    with fake_index.start(index, cache, *arguments) as running:
        assert index.reached.wait(60)
        running.kill()
    assert kept(cache) == ["draft"]
    index.held = False
    index.release.set()
    with fake_index.start(index, cache, *arguments) as running:
        said, _ = running.communicate()
    assert running.returncode == 3
    assert json.loads(said)["versions"][0]["version"] == "2.0"
    assert kept(cache) == ["demo-2.0-py3-none-any.whl"]
    assert index.downloads == 2


def test_two_at_once_download_once_and_the_second_says_that_it_waits(
    root: Path, index: fake_index.Index, cache: Path
) -> None:
    index.held = True
    arguments = ("patch", "doctor", "--tree", root, "--to", "2.0")
    with fake_index.start(index, cache, *arguments) as first:
        assert index.reached.wait(60)
        with fake_index.start(index, cache, *arguments) as second:
            assert second.stderr is not None
            assert f"waiting for process {first.pid}, which holds" in second.stderr.readline()
            index.release.set()
            said, _ = second.communicate()
        first_said, _ = first.communicate()
    assert said == first_said
    assert (first.returncode, second.returncode, index.downloads) == (3, 3, 1)
