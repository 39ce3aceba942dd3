import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from images.inspect.source import open_image
from images.inspect.view import View
from releases.known import Known
from releases.testing.toy import R0, R1, Toy, silent
from releases.tree import build
from releases.tree.git import Git
from releases.verifying import verify, verify_files
from tests.engine import synthetic
from tests.faults import killer
from tools.cli.errors import UserError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(toy: Toy, *words: str, **environment: str) -> killer.Outcome:
    return killer.run(0, "tools.moet.main", ["image", "verify", *words], toy.root, environment)


def kept(toy: Toy, out: Path) -> Path:
    """The layout of r1 as it was released."""
    with build.elsewhere(Git(toy.root), toy.changelog.entries[0].commit) as workspace:
        return Path(shutil.copytree(workspace.built(R1), out))


def test_the_same_image(toy: Toy, home: Path) -> None:
    entry = toy.changelog.entries[0]
    done = run(toy, str(R1))
    assert done.status == 0, done.errors
    assert done.output == f"{R1}: commit {entry.commit} built again is {entry.digest}: the same image\n"
    assert run(toy, str(R0)).status == 0
    assert list(home.rglob("moet-release-*")) == []


def test_another_image_names_the_layer(toy: Toy) -> None:
    entry = toy.changelog.entries[0]
    done = run(toy, str(R1), TOY_SALT="another")
    assert done.status == 3
    lines = done.output.split("\n")
    assert lines[:2] == [f"{R1}: DIFFERS", f"released  {entry.digest}"]
    assert lines[2].startswith("built     sha256:")
    assert lines[2].endswith(f"(commit {entry.commit})")
    assert lines[3] == "layer 1, rootfs, is the first that differs"
    assert "name the image as it was released with --against" in done.errors


@pytest.mark.parametrize("form", ["layout", "tar"])
def test_against_the_released_image_names_the_file(toy: Toy, tmp_path: Path, form: str) -> None:
    source = kept(toy, tmp_path / "kept")
    if form == "tar":
        with tarfile.open(tmp_path / "kept.tar", "w") as tar:
            tar.add(source, arcname=".")
        source = tmp_path / "kept.tar"
    done = run(toy, str(R1), "--against", str(source), TOY_SALT="another")
    assert done.status == 3, done.errors
    assert "\n/etc/salt: size (4 was released, 7 was built), content (sha256:" in done.output
    told = run(toy, str(R1), "--against", str(source), "--json", TOY_SALT="nine")
    document = json.loads(told.output)
    assert (told.status, document["schema"], document["same"]) == (3, "moet.image-verify.v1", False)
    assert (document["layer"]["name"], document["file"]["path"]) == ("rootfs", "etc/salt")
    assert list(document["file"]["what"]) == ["content"]


def test_against_another_image_is_refused(toy: Toy, tmp_path: Path) -> None:
    other = synthetic.make_moet_layout(tmp_path / "other", str(R1))
    done = run(toy, str(R1), "--against", str(other))
    assert done.status == 1
    assert f", not {R1} (sha256:" in done.errors


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([str(R1).replace("r1", "r9")], "no release in CHANGELOG.md"),
        (["toy"], "'toy' is no release's tag"),
        ([str(R1), "--signature"], "--signature needs --registry REGISTRY/NAME and --key FILE"),
        ([str(R1), "--key", "x"], "--key and --registry are for --signature"),
        ([str(R1), "--signature", "--key", "x", "--registry", "toy"], "expected REGISTRY/NAME"),
        ([str(R1), "--against", "/no/such"], "/no/such: there is no such file or folder"),
    ],
)
def test_refusals(toy: Toy, words: list[str], says: str) -> None:
    done = run(toy, *words)
    assert done.status == 1
    assert says in done.errors
    assert done.errors.count("\n") == 1


def test_a_commit_that_is_not_here(toy: Toy, tmp_path: Path) -> None:
    toy.git("clone", "-q", "--depth=1", f"file://{toy.root}", str(tmp_path / "shallow"))
    with pytest.raises(UserError, match=r"its commit [0-9a-f]{40} is not in this clone: git fetch --unshallow"):
        verify.verify(Known.find(tmp_path / "shallow"), R1, None, silent)


def test_a_build_that_fails(toy: Toy) -> None:
    done = run(toy, str(R1), TOY_FAILS="1")
    assert done.status == 1
    assert "bazel build --config=release //images/toy:toy failed with exit status 1, see above" in done.errors


Members = list[tuple[tarfile.TarInfo, bytes]]


def member(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def view(folder: Path, members: Members, level: int = 1) -> View:
    """An image whose first layer has these members."""
    layout = synthetic.make_moet_layout(folder, layers={"first": {"a": b""}})
    found = open_image(f"layout://{layout}", None)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    packed = gzip.compress(raw.getvalue(), level, mtime=0)

    class Layer:
        name, digest, size = "first", None, None
        diff_id = "sha256:" + hashlib.sha256(raw.getvalue()).hexdigest()

    return View(**{**vars(found), "layers": (Layer,), "open_layer": lambda _: iter([packed])})


BASE = [member("a"), member("b/c", b"yy", mode=0o644), member("l", b"", type=tarfile.SYMTYPE, linkname="a")]

DIFFERENCES: list[tuple[str, Callable[[], Members], str, list[str]]] = [
    ("content", lambda: [BASE[0], member("b/c", b"zz"), BASE[2]], "b/c", ["content"]),
    ("size", lambda: [member("a", b"xx"), *BASE[1:]], "a", ["size", "content"]),
    ("mode", lambda: [BASE[0], member("b/c", b"yy", mode=0o755), BASE[2]], "b/c", ["mode"]),
    ("mtime", lambda: [member("a", mtime=5), *BASE[1:]], "a", ["mtime"]),
    ("owner", lambda: [member("a", uid=5), *BASE[1:]], "a", ["owner"]),
    ("link", lambda: [*BASE[:2], member("l", b"", type=tarfile.SYMTYPE, linkname="b")], "l", ["content"]),
    ("gone", lambda: BASE[:2], "l", ["missing in the rebuilt image"]),
    ("new", lambda: [*BASE, member("n")], "n", ["missing in the released image"]),
    ("order", lambda: [BASE[1], BASE[0], BASE[2]], "a", ["order of the entries"]),
]


@pytest.mark.parametrize(("name", "other", "path", "what"), DIFFERENCES, ids=[one[0] for one in DIFFERENCES])
def test_the_first_file_that_differs(
    tmp_path: Path, name: str, other: Callable[[], Members], path: str, what: list[str]
) -> None:
    found = verify_files.first(view(tmp_path / "a", BASE), view(tmp_path / "b", other()), 0)
    assert (found.path, list(found.what)) == (path, what)


def test_files_that_are_the_same_in_another_compression(tmp_path: Path) -> None:
    found = verify_files.first(view(tmp_path / "a", BASE, 1), view(tmp_path / "b", BASE, 9), 0)
    assert (found.path, list(found.what)) == ("", ["compression, or the tar's own headers"])


def test_a_layer_that_is_corrupt(tmp_path: Path) -> None:
    whole = view(tmp_path / "a", BASE)
    broken = View(**{**vars(whole), "open_layer": lambda _: iter([b"\x1f\x8bnothing of the kind"])})
    with pytest.raises(UserError, match="is no gzip stream"):
        verify_files.first(whole, broken, 0)
