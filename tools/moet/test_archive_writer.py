import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.moet import archive_writer

MAIN = Path(__file__).with_name("archive_main.py")
PROGRAM = """
import sys
from importlib import resources
def main():
    print((resources.files("pack.inner") / "data" / "words.txt").read_text(), *sys.argv[1:])
    if "signing" in sys.argv:
        import cffi
    return 5
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pack/inner/data").mkdir(parents=True)
    (tmp_path / "pack/inner/program.py").write_text(PROGRAM)
    (tmp_path / "pack/inner/data/words.txt").write_text("carried")
    return tmp_path


def make(tree: Path, out: str = "x.pyz", *more: str) -> int:
    files = [path for path in sorted(tree.glob("pack/**/*")) if path.is_file()]
    return archive_writer.main(
        [
            *("--out", str(tree / out), "--main", str(MAIN), "--entry", "pack.inner.program:main", "--name", "x.pyz"),
            *(f"--file={path.relative_to(tree)}={path}" for path in files),
            *more,
        ]
    )


def test_runs_alone_with_its_data_and_status(tree: Path) -> None:
    assert make(tree) == 0
    empty = tree / "empty"
    empty.mkdir()
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run([tree / "x.pyz", "a"], cwd=empty, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (5, "carried a\n", "")
    assert os.listdir(empty) == []


def test_same_bytes_whatever_the_files_times_and_order(tree: Path) -> None:
    make(tree)
    os.utime(tree / "pack/inner/program.py", (1, 1))
    (tree / "pack/inner/program.py").chmod(0o777)
    make(tree, "y.pyz")
    assert (tree / "x.pyz").read_bytes() == (tree / "y.pyz").read_bytes()


def test_package_that_is_left_out_is_named(tree: Path) -> None:
    assert make(tree, "x.pyz", "--left-out=cffi") == 0
    done = subprocess.run([sys.executable, "-I", "-S", tree / "x.pyz", "signing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("x.pyz: needs the package cffi")
    assert done.stderr.count("\n") == 1


def test_older_python_gets_one_line(tree: Path) -> None:
    make(tree)
    # What an older interpreter would see; none is installed.
    code = "import sys, runpy; sys.version_info = (3, 9, 2); sys.argv = sys.argv[1:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, tree / "x.pyz"], capture_output=True, text=True)
    assert done.returncode == 1
    found = f"this is 3.9 at {sys.executable}"
    assert done.stderr == f"x.pyz: needs Python 3.11 or newer, {found}; run it with one: python3.11 x.pyz ...\n"


def test_start_parses_on_old_pythons() -> None:
    import ast

    text = MAIN.read_text()
    ast.parse(text, feature_version=(3, 4))
    for word in ("f'", 'f"', "nonlocal", "->", ":="):
        assert word not in text


def test_compiled_part_that_nobody_decided_on(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "pack/fast.cpython-311.so").write_bytes(b"\x7fELF")
    assert make(tree) == 1
    assert "x.pyz: pack/fast.cpython-311.so: is compiled: name pack in `left_out`" in capsys.readouterr().err
    assert not (tree / "x.pyz").exists()
    assert make(tree, "x.pyz", "--pure=pack") == 0
    assert b"\x7fELF" not in (tree / "x.pyz").read_bytes()


def test_bytecode_stays_out(tree: Path) -> None:
    make(tree)
    before = (tree / "x.pyz").read_bytes()
    (tree / "pack/__pycache__").mkdir()
    (tree / "pack/__pycache__/program.cpython-311.pyc").write_bytes(b"bytecode")
    make(tree)
    assert (tree / "x.pyz").read_bytes() == before


def test_what_the_host_altered_is_refused_or_taken_from_the_wheel(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tree / "pack/inner/data/words.txt"
    digest = base64.urlsafe_b64encode(hashlib.sha256(words.read_bytes()).digest()).decode().rstrip("=")
    record = tree / "RECORD"
    record.write_text(f"pack/inner/data/words.txt,sha256={digest},7\npack-1.dist-info/RECORD,,\n")
    with zipfile.ZipFile(tree / "pack-1.whl", "w") as wheel:
        wheel.write(words, "pack/inner/data/words.txt")
        wheel.writestr("pack/unwanted.py", b"")
    listed = f"--file=pack-1.dist-info/RECORD={record}"
    assert make(tree, "x.pyz", listed) == 0
    words.write_text("carried, and more")
    assert make(tree, "y.pyz", listed) == 1
    assert "y.pyz: pack/inner/data/words.txt: is not what" in capsys.readouterr().err.replace("x.pyz", "y.pyz")
    assert make(tree, "y.pyz", listed, f"--wheel={tree / 'pack-1.whl'}") == 0
    assert (tree / "x.pyz").read_bytes() == (tree / "y.pyz").read_bytes()


def test_two_files_for_one_path_and_a_path_that_leads_out(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "other").write_text("other")
    assert make(tree, "x.pyz", f"--file=pack/inner/program.py={tree / 'other'}", f"--file=../x={tree / 'other'}") == 1
    said = capsys.readouterr().err
    assert "../x: leads out of the archive" in said
    assert "pack/inner/program.py: " in said
