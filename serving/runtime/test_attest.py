"""Attestation of a fake image: what passes, and what each kind of change is found as."""

import base64
import hashlib
import json
import os
import py_compile
from pathlib import Path

import pytest

from images.manifest import model
from serving.runtime import attest, fake_image, report
from serving.runtime.fake_image import KERNEL, LAUNCHER, OVERLAID, RECORD, RUNTIME, SITE, FakeImage
from serving.runtime.mismatch import Mismatch


@pytest.fixture
def image(tmp_path: Path) -> FakeImage:
    return fake_image.make(tmp_path / "root")


def run(image: FakeImage, **more: str) -> attest.Attestation:
    return attest.attest(str(image.root), {**image.environment, **more}, fake_image.python())


def only(image: FakeImage, **more: str) -> Mismatch:
    found = run(image, **more)
    assert not found.ok
    assert len(found.mismatches) == 1, found.mismatches
    return found.mismatches[0]


def subjects(image: FakeImage) -> set[tuple[str, str]]:
    return {(item.check, item.subject) for item in run(image).mismatches}


def test_untouched_image_attests(image: FakeImage) -> None:
    found = run(image)
    assert found.mismatches == ()
    assert found.ok
    assert [(state.step.number, state.live) for state in found.steps] == [(1, True), (2, False)]
    assert found.warnings == ()


@pytest.mark.parametrize("path", [OVERLAID, KERNEL, RUNTIME])
def test_one_changed_byte(image: FakeImage, path: str) -> None:
    before = image.path(path).read_bytes()
    after = bytes([before[0] ^ 1]) + before[1:]
    image.path(path).write_bytes(after)
    item = only(image)
    assert (item.check, item.subject) == ("file", path)
    assert item.expected == f"sha256 {hashlib.sha256(before).hexdigest()} ({len(before)} bytes)"
    assert item.found == f"sha256 {hashlib.sha256(after).hexdigest()} ({len(after)} bytes)"


def test_truncated_file(image: FakeImage) -> None:
    image.path(OVERLAID).write_bytes(image.path(OVERLAID).read_bytes()[:-5])
    assert only(image).found.endswith("(19 bytes)")


def test_missing_file(image: FakeImage) -> None:
    image.path(KERNEL).unlink()
    assert (only(image).subject, only(image).found) == (KERNEL, "no such file")


def test_missing_folder(image: FakeImage) -> None:
    image.path(KERNEL).unlink()
    image.path(KERNEL).parents[1].rename(image.root / "elsewhere")
    found = subjects(image)
    assert ("file", KERNEL) in found
    assert ("import", "import moet_kernels") in found


def test_symlink_to_the_same_bytes(image: FakeImage) -> None:
    path = image.path(OVERLAID)
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))
    item = only(image)
    assert item.subject == OVERLAID
    assert item.found == f"a symbolic link to {path.with_suffix('.moved')}"


def test_folder_swapped_for_a_symlink(image: FakeImage) -> None:
    folder = image.path(KERNEL).parent
    folder.rename(image.root / "copy")
    folder.symlink_to(image.root / "copy")
    found = run(image).mismatches
    assert [item.found for item in found if item.subject == KERNEL] == [
        f"a symbolic link on the way, to {os.path.realpath(image.root)}/copy/gemv.so"
    ]


def test_folder_in_place_of_a_file(image: FakeImage) -> None:
    image.path(KERNEL).unlink()
    image.path(KERNEL).mkdir()
    assert "Is a directory" in only(image).found


def test_named_pipe_does_not_hang(image: FakeImage) -> None:
    image.path(KERNEL).unlink()
    os.mkfifo(image.path(KERNEL))
    assert only(image).found == "something that is no regular file"


def test_unreadable_file(image: FakeImage, monkeypatch: pytest.MonkeyPatch) -> None:
    denied, real = str(image.path(KERNEL)), os.open

    def open_but_one(path: str, flags: int) -> int:
        if path == denied:
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags)

    # Root may read what nobody may, so that a mode of 000 proves nothing here.
    monkeypatch.setattr("serving.runtime.files.os.open", open_but_one)
    assert only(image).found == f"what uid {os.geteuid()} cannot read: Permission denied"


def test_edited_manifest(image: FakeImage) -> None:
    data = image.path(model.PATH).read_bytes()
    image.path(model.PATH).write_bytes(data.replace(b'"identical"', b'"rounding"'))
    found = run(image)
    assert found.manifest is None
    assert found.steps == ()
    assert [(item.check, item.subject) for item in found.mismatches] == [("manifest", model.PATH)]
    assert found.mismatches[0].expected == f"sha256 {hashlib.sha256(data).hexdigest()}"


def test_anchor_from_outside_counts_instead(image: FakeImage) -> None:
    found = attest.attest(str(image.root), image.environment, fake_image.python(), anchor="0" * 64)
    assert [item.check for item in found.mismatches] == ["manifest"]
    del image.environment[model.ANCHOR]
    digest = hashlib.sha256(image.path(model.PATH).read_bytes()).hexdigest()
    assert attest.attest(str(image.root), image.environment, fake_image.python(), anchor=digest).ok


def test_missing_anchor(image: FakeImage) -> None:
    del image.environment[model.ANCHOR]
    with pytest.raises(attest.CannotAttestError, match="MOET_MANIFEST_SHA256 is not set"):
        run(image)


def test_malformed_anchor(image: FakeImage) -> None:
    with pytest.raises(attest.CannotAttestError, match="64 hexadecimal digits"):
        run(image, MOET_MANIFEST_SHA256="latest")


def test_missing_manifest(image: FakeImage) -> None:
    image.path(model.PATH).unlink()
    with pytest.raises(attest.CannotAttestError, match=r"manifest\.json: cannot be read: No such file"):
        run(image)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not JSON at line 1"),
        (b"\xff", "not UTF-8"),
        (b"[]", "top level: expected an object"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_manifest_under_a_right_anchor(image: FakeImage, data: bytes, message: str) -> None:
    fake_image.remake_manifest(image, data)
    with pytest.raises(attest.CannotAttestError) as caught:
        run(image)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_manifest_of_another_schema(image: FakeImage) -> None:
    data = image.path(model.PATH).read_bytes()
    fake_image.remake_manifest(image, data.replace(b"moet.manifest.v1", b"moet.manifest.v2"))
    with pytest.raises(
        attest.CannotAttestError, match=r'schema: expected one of moet\.manifest\.v1, found "moet'
    ):
        run(image)


def test_manifest_that_lacks_a_key(image: FakeImage) -> None:
    plain = json.loads(image.path(model.PATH).read_bytes())
    del plain["files"][0]["sha256"]
    fake_image.remake_manifest(image, json.dumps(plain).encode())
    with pytest.raises(attest.CannotAttestError, match=r"files\[0\]\.sha256: missing"):
        run(image)


def test_record_of_the_wheel_instead_of_the_overlay(image: FakeImage) -> None:
    record = image.path(RECORD).read_text()
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"wheel").digest()).decode().rstrip("=")
    image.write(RECORD, record.replace(record.split("=")[1].split(",")[0], digest).encode())
    assert subjects(image) == {("file", RECORD), ("record", f"RECORD of {OVERLAID}")}


@pytest.mark.parametrize("text", ["vllm/x.py,sha256=*,1\n", "vllm/x.py,sha256=abc,many\n", "\xff"])
def test_malformed_record(image: FakeImage, text: str) -> None:
    image.write(RECORD, text.encode("latin-1"))
    assert ("record", RECORD) in subjects(image)


def test_missing_record(image: FakeImage) -> None:
    image.path(RECORD).unlink()
    assert {(item.check, item.found) for item in run(image).mismatches} == {
        ("file", "no such file"),
        ("record", "No such file or directory"),
    }


def test_changed_launcher(image: FakeImage) -> None:
    image.path(LAUNCHER).write_text("#!/bin/sh\n")
    assert (only(image).check, only(image).subject) == ("record", LAUNCHER)


def test_package_shadowed_by_pythonpath(image: FakeImage, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    (shadow / "vllm").mkdir(parents=True)
    (shadow / "vllm/__init__.py").write_text("")
    item = only(image, PYTHONPATH=f"{shadow}:{image.environment['PYTHONPATH']}")
    assert (item.check, item.subject) == ("import", "import vllm")
    assert item.expected.endswith(f"{SITE}/vllm")
    assert item.found == str(shadow / "vllm")


def test_module_shadowed_by_pythonpath(image: FakeImage, tmp_path: Path) -> None:
    (tmp_path / "moet_kernels.py").write_text("")
    item = only(image, PYTHONPATH=f"{tmp_path}:{image.environment['PYTHONPATH']}")
    assert item.found == str(tmp_path / "moet_kernels.py")


def test_kernels_from_elsewhere(image: FakeImage, tmp_path: Path) -> None:
    assert str(only(image, MOET_KERNELS=str(tmp_path))) == f"MOET_KERNELS: expected it not to be set, found {tmp_path}"
    assert run(image, MOET_KERNELS="").ok


def test_import_hook_of_an_editable_installation(image: FakeImage, tmp_path: Path) -> None:
    (tmp_path / "src/vllm").mkdir(parents=True)
    (tmp_path / "src/vllm/__init__.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, importlib.machinery\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        return importlib.machinery.PathFinder.find_spec(name, [{str(tmp_path / 'src')!r}])\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    found = run(image, PYTHONPATH=f"{image.environment['PYTHONPATH']}:{tmp_path}")
    assert [item.found for item in found.mismatches] == [str(tmp_path / "src/vllm")]


def test_working_folder_does_not_shadow(
    image: FakeImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert run(image).ok


def test_package_that_is_not_found(image: FakeImage) -> None:
    found = run(image, PYTHONPATH="")
    assert {item.subject for item in found.mismatches} == {"import vllm", "import moet_kernels"}
    assert {item.found for item in found.mismatches} == {"no such module"}


def test_interpreter_that_does_not_start(image: FakeImage) -> None:
    item = only(image, PYTHONHOME="/nowhere")
    assert (item.check, item.subject) == ("import", fake_image.python())


def compile_other(
    image: FakeImage, source: bytes, mode: py_compile.PycInvalidationMode, target: Path
) -> None:
    """Puts bytecode of another source of the same size and time where Python looks for that of OVERLAID."""
    path = image.path(OVERLAID)
    right, status = path.read_bytes(), path.stat()
    path.write_bytes(source)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    py_compile.compile(str(path), cfile=str(target), doraise=True, invalidation_mode=mode)
    path.write_bytes(right)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


CACHED = f"{SITE}/vllm/tokenizers/__pycache__/deepseek_v41.cpython-311.pyc"
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
TIMESTAMP = py_compile.PycInvalidationMode.TIMESTAMP


@pytest.mark.parametrize("mode", [UNCHECKED, TIMESTAMP])
def test_stale_bytecode_that_python_would_run(image: FakeImage, mode: py_compile.PycInvalidationMode) -> None:
    compile_other(image, b"TIERS = {'minimal': 99}\n", mode, image.path(CACHED))
    item = only(image)
    assert (item.check, item.subject) == ("bytecode", str(image.path(CACHED)))
    assert item.expected == f"bytecode of {OVERLAID}"


def test_stale_bytecode_that_python_would_compile_anew(image: FakeImage) -> None:
    compile_other(image, b"TIERS = {'minimal': 99}\n", CHECKED, image.path(CACHED))
    assert run(image).ok
    compile_other(image, b"TIERS = {'minimal': 9}\n", TIMESTAMP, image.path(CACHED))
    assert run(image).ok


@pytest.mark.parametrize("mode", [UNCHECKED, CHECKED, TIMESTAMP])
@pytest.mark.parametrize(("level", "suffix"), [(0, ""), (1, ".opt-1"), (2, ".opt-2")])
def test_right_bytecode(
    image: FakeImage, mode: py_compile.PycInvalidationMode, level: int, suffix: str
) -> None:
    target = image.path(CACHED.replace(".pyc", suffix + ".pyc"))
    source = image.path(OVERLAID)
    py_compile.compile(str(source), cfile=str(target), optimize=level, doraise=True, invalidation_mode=mode)
    assert run(image).ok


def test_cut_off_bytecode(image: FakeImage) -> None:
    compile_other(image, b"TIERS = {'minimal': 25}\n", UNCHECKED, image.path(CACHED))
    assert run(image).ok
    image.path(CACHED).write_bytes(image.path(CACHED).read_bytes()[:-9])
    assert only(image).check == "bytecode"


def test_stale_bytecode_in_a_cache_elsewhere(image: FakeImage, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / str(image.path(OVERLAID).parent).lstrip("/")
    target = folder / "deepseek_v41.cpython-311.pyc"
    compile_other(image, b"TIERS = {'minimal': 99}\n", UNCHECKED, target)
    assert run(image).ok
    assert only(image, PYTHONPYCACHEPREFIX=str(tmp_path / "cache")).subject == str(target)


@pytest.mark.parametrize("shadow", ["deepseek_v41.abi3.so", "deepseek_v41/__init__.py"])
def test_module_that_is_loaded_instead(image: FakeImage, shadow: str) -> None:
    path = f"{SITE}/vllm/tokenizers/{shadow}"
    image.write(path, b"")
    assert (only(image).check, only(image).subject) == ("bytecode", path)


def test_several_changes_are_all_named(image: FakeImage) -> None:
    image.path(KERNEL).unlink()
    image.path(OVERLAID).write_text("")
    text = report.text(run(image))
    assert f"moet: MISMATCH {KERNEL}: expected sha256 " in text
    assert f"moet: MISMATCH {OVERLAID}: expected sha256 " in text
    assert "2 mismatches in dsv41:vllm0.33.0-r1: refused:" in text
