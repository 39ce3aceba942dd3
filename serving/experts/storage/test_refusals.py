import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.experts.storage import made_up
from serving.experts.storage.reader import Container, Expect
from serving.experts.storage.refusal import DamagedError, StorageError
from serving.experts.storage.writer import Writer

NOBODY = 65534


@pytest.fixture
def there(tmp_path: Path) -> Path:
    made_up.write(tmp_path / "c")
    return tmp_path / "c"


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        (Expect(checkpoint="00" * 32), "made from another model"),
        (Expect(kind="mxfp4-store"), "kind 'w2-pack'; expected 'mxfp4-store'"),
        (Expect(quantizer_abi=2), "quantizer_abi 1; expected 2: quantize again"),
        (Expect(zero_mode="alt"), "zero_mode 'auto'; expected 'alt'"),
        (Expect(experts=4), "experts 3; expected 4"),
        (Expect(slot_bytes=5), "slot_bytes 10001; expected 5"),
        (Expect(layers=(2, 3)), "has no layer 3"),
    ],
)
def test_wrong_model(there: Path, expect: Expect, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        Container.open(there, expect)


def test_wrong_version(there: Path) -> None:
    path = there / "experts.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(StorageError, match="version 2 of the format; this program reads version 1"):
        Container.open(there)


@pytest.mark.parametrize("left", [0, 1, 12_288, 5 * 3 * 12_288, 5 * 3 * 12_288 + 4095])
def test_truncated(there: Path, left: int) -> None:
    os.truncate(made_up.data_file(there), left)
    with pytest.raises(StorageError, match=rf"{left:,} bytes; expected 188,416: it was cut short"):
        Container.open(there)


def test_longer_than_it_should_be(there: Path) -> None:
    with made_up.data_file(there).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(StorageError, match="bytes that are not the container's"):
        Container.open(there)


def test_bit_flipped_in_a_record(there: Path) -> None:
    made_up.flip(made_up.data_file(there), (4 * 3 + 1) * 12_288 + 10_000)
    with Container.open(there) as opened:
        with pytest.raises(DamagedError, match=r"layer 4, expert 1 .*: its bytes changed") as refused:
            opened.read(4, 1)
        assert (refused.value.layer, refused.value.expert) == (4, 1)
        assert opened.read(4, 0) == made_up.records(made_up.header())[4, 0]
        assert opened.read(4, 1, verify=False)[:9] == made_up.records(made_up.header())[4, 1][:9]


@pytest.mark.parametrize("at", [0, 20, 40, 60, 90, 2000, 4095])
def test_bit_flipped_in_the_trailer(there: Path, at: int) -> None:
    made_up.flip(made_up.data_file(there), 5 * 3 * 12_288 + at)
    with pytest.raises(StorageError, match="last 4096 bytes are not those"):
        Container.open(there)


def test_bit_flipped_anywhere_in_the_sidecar(there: Path) -> None:
    path = there / "experts.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StorageError, match=r"experts\.json: "):
            Container.open(there)
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(StorageError, match=r"experts\.json: "):
            Container.open(there)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": "0"}, {"layers": [1.5]}, {"layers": []}, {"experts": True}, {"experts": 1 << 60}, {"stride": 1},
        {"stride": None}, {"slot_bytes": -1}, {"checkpoint": 5}, {"checksum": "crc32"}, {"records": None},
        {"records": {}}, {"kind": None}, {"extra": []}, {"tag": 1}, {"tag": []}, {"kind": []}, {"checkpoint": None},
        {"layers": "24"}, {"layers": [2, 4.0]}, {"layers": [2, True]}, {"layers": None}, {"zero_mode": {}},
        {"zero_mode": 1}, {"quantizer_abi": "1"}, {"quantizer_abi": True}, {"records": {"2": "abc", "4": "abc"}},
        {"records": {"2": {"0" * 16: 1, "1" * 16: 1, "2" * 16: 1}, "4": [None] * 3}},
    ],
)  # fmt: skip
def test_sidecar_that_says_nonsense(there: Path, change: dict[str, Any]) -> None:
    path = there / "experts.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(StorageError, match=r"experts\.json: .*damaged"):
        Container.open(there)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"extra":' * 100_000])
def test_sidecar_nested_without_end(there: Path, text: str) -> None:
    (there / "experts.json").write_text(text)
    with pytest.raises(StorageError, match=r"experts\.json: is no JSON document .*nested"):
        Container.open(there)


def test_sidecar_with_facts_nested_deep(there: Path) -> None:
    path = there / "experts.json"
    deep = "[" * 900 + "]" * 900
    path.write_text(path.read_text().replace('"hidden": 64', f'"hidden": {deep}'))
    with pytest.raises(StorageError, match=r"experts\.json: "):
        Container.open(there)


def test_files_are_open_for_waiting_reads(there: Path) -> None:
    with Container.open(there) as container:
        assert not fcntl.fcntl(container.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK


def test_stale_sidecar(there: Path) -> None:
    old = (there / "experts.json").read_bytes()
    made_up.write(there, data=made_up.records(made_up.header(), seed=1), replace=True)
    (there / "experts.json").write_bytes(old)
    with pytest.raises(StorageError, match="the sidecar is older or newer than the records"):
        Container.open(there)


def test_stale_sidecar_with_the_other_records_under_its_name(there: Path) -> None:
    old, name = (there / "experts.json").read_bytes(), made_up.data_file(there).name
    made_up.write(there, data=made_up.records(made_up.header(), seed=1), replace=True)
    made_up.data_file(there).rename(there / name)
    (there / "experts.json").write_bytes(old)
    with pytest.raises(StorageError, match="last 4096 bytes are not those"):
        Container.open(there)


@pytest.mark.parametrize("name", ["experts.json", "records"])
def test_symlink_in_place_of_a_file(there: Path, name: str) -> None:
    path = made_up.data_file(there) if name == "records" else there / name
    path.rename(there.parent / path.name)
    path.symlink_to(there.parent / path.name)
    with pytest.raises(StorageError, match="is a symbolic link; expected the file itself"):
        Container.open(there)


@pytest.mark.parametrize("name", ["draft.bin", "draft.journal", "draft.json", "writer.lock", "experts.json"])
def test_writer_follows_no_symlink(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = tmp_path / "c"
    if name.startswith("draft"):
        with Writer.open(folder, made_up.header()) as writer:
            writer.put(2, 0, made_up.records(made_up.header())[2, 0])
        (folder / name).unlink()
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"):
        made_up.write(folder)
    assert victim.read_bytes() == b"precious"


def test_folder_may_be_a_symlink(there: Path) -> None:
    (there.parent / "l").symlink_to(there)
    assert Container.open(there.parent / "l").read(2, 0) == made_up.records(made_up.header())[2, 0]


def test_pipe_in_place_of_a_file_does_not_hang(there: Path) -> None:
    path = made_up.data_file(there)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="no regular file"):
        Container.open(there)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not there; expected the folder"):
        Container.open(tmp_path / "x")
    with pytest.raises(StorageError, match=r"experts.json: is not there"):
        Container.open(tmp_path)
    (tmp_path / "f").touch()
    with pytest.raises(StorageError, match="expected a folder there, found a file"):
        Container.open(tmp_path / "f")
    with pytest.raises(StorageError, match="expected a folder there, found a file"):
        made_up.write(tmp_path / "f")


def test_records_deleted(there: Path) -> None:
    made_up.data_file(there).unlink()
    with pytest.raises(StorageError, match="there is no file of records"):
        Container.open(there)


@pytest.fixture
def public(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def as_nobody(code: str, *arguments: str) -> str:
    """Runs Python as a user who owns nothing, and returns what it prints."""
    start = f"import os, sys; sys.path[:] = {sys.path!r}\n"
    drop = f"if os.geteuid() == 0: os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    imports = (
        "from pathlib import Path\nfrom serving.experts.storage import made_up\n"
        "from serving.experts.storage.reader import Container\n"
        "from serving.experts.storage.refusal import StorageError\n"
    )
    body = f"try:\n    {code}\nexcept StorageError as error: print(error)\n"
    # Imports come first: the user may not be allowed to read the tree.
    done = subprocess.run(
        [sys.executable, "-c", start + imports + drop + body, *arguments], capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["experts.json", "records"])
def test_no_permission_to_read(public: Path, name: str) -> None:
    made_up.write(public / "c")
    path = made_up.data_file(public / "c") if name == "records" else public / "c" / name
    path.chmod(0)
    said = as_nobody("Container.open(Path(sys.argv[1]))", str(public / "c"))
    assert f"{path}: no permission" in said


def test_no_permission_to_write(public: Path) -> None:
    made_up.write(public / "c")
    before = made_up.files(public / "c")
    for folder in (public / "c", public / "new"):
        public.chmod(0o555)
        said = as_nobody("made_up.write(Path(sys.argv[1]), replace=True)", str(folder))
        assert "no permission" in said
    assert made_up.files(public / "c") == before and os.listdir(public) == ["c"]
