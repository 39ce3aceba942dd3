import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from serving.experts.storage import made_up
from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import AlreadyCompleteError, DamagedError, StorageError
from serving.experts.storage.writer import Writer


def test_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with Writer.open(tmp_path, made_up.header()) as writer:
        writer.put(2, 0, made_up.records(made_up.header())[2, 0])
        code = f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\n"
        code += "from serving.experts.storage import made_up\nmade_up.write(Path(sys.argv[1]))\n"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and f"process {os.getpid()} writes it; wait for it to end" in done.stderr
        with pytest.raises(StorageError, match=f"is not finished; process {os.getpid()} is writing it"):
            Container.open(tmp_path)
        with pytest.raises(StorageError, match="writes it"):
            Writer.discard(tmp_path)
    made_up.write(tmp_path)


def test_readers_see_old_or_new_while_a_writer_replaces(tmp_path: Path) -> None:
    of = made_up.header()
    seeds = [made_up.records(of, seed) for seed in range(2)]
    made_up.write(tmp_path, data=seeds[0])
    failures: list[BaseException] = []
    opened, over = [0, 0], threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                with Container.open(tmp_path) as container:
                    found = {key: bytes(container.read(*key)) for key in container.present()}
                    opened[seeds.index(found)] += 1
        except BaseException as error:
            failures.append(error)

    code = f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\n"
    code += "from serving.experts.storage import made_up\nof = made_up.header()\n"
    code += "for round in range(1, 60):\n"
    code += "    made_up.write(Path(sys.argv[1]), data=made_up.records(of, round % 2), replace=True)\n"
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    over.set()
    for reader in readers:
        reader.join()
    assert done.returncode == 0, done.stderr
    assert not failures and min(opened) > 0
    assert len(made_up.files(tmp_path)) == 2


def test_open_container_outlives_its_replacement(tmp_path: Path) -> None:
    made_up.write(tmp_path)
    with Container.open(tmp_path) as container:
        made_up.write(tmp_path, data=made_up.records(made_up.header(), 1), replace=True)
        assert container.read(2, 1) == made_up.records(made_up.header())[2, 1]


def test_finished_container_is_not_overwritten_unasked(tmp_path: Path) -> None:
    made_up.write(tmp_path)
    before = made_up.files(tmp_path)
    with pytest.raises(AlreadyCompleteError, match="complete already; to write it anew, say --replace"):
        made_up.write(tmp_path)
    with pytest.raises(StorageError, match="zero_mode 'auto', not 'alt'"):
        made_up.write(tmp_path, made_up.header(zero_mode="alt"))
    (tmp_path / "experts.json").write_text("{}")
    with pytest.raises(StorageError, match="has no schema"):
        made_up.write(tmp_path)
    (tmp_path / "experts.json").write_bytes(before["experts.json"])
    assert made_up.files(tmp_path) == before


def test_draft_of_something_else(tmp_path: Path) -> None:
    with Writer.open(tmp_path, made_up.header()) as writer:
        writer.put(2, 0, made_up.records(made_up.header())[2, 0])
    other = made_up.header(checkpoint="00" * 32)
    with pytest.raises(StorageError, match=r"draft of something else .*checkpoint.*--restart"):
        made_up.write(tmp_path, other)
    made_up.write(tmp_path, other, restart=True)
    assert Container.open(tmp_path).header == other


@pytest.mark.parametrize("harm", ["short", "long", "gone"])
def test_draft_that_was_tampered_with(tmp_path: Path, harm: str) -> None:
    made_up.write(tmp_path / "whole")
    with Writer.open(tmp_path / "c", made_up.header()) as writer:
        writer.put(2, 0, made_up.records(made_up.header())[2, 0])
    path = tmp_path / "c/draft.bin"
    if harm == "gone":
        path.unlink()
    else:
        os.truncate(path, 1000 if harm == "short" else 1 << 20)
        with pytest.raises(StorageError, match="changed by something else"):
            made_up.write(tmp_path / "c")
    made_up.write(tmp_path / "c", restart=harm != "gone")
    assert made_up.files(tmp_path / "c") == made_up.files(tmp_path / "whole")


def test_discarded_draft_leaves_the_container(tmp_path: Path) -> None:
    made_up.write(tmp_path)
    before = made_up.files(tmp_path)
    with Writer.open(tmp_path, made_up.header(), replace=True) as writer:
        writer.put(2, 0, bytes(made_up.SLOT))
    assert made_up.files(tmp_path) != before
    Writer.discard(tmp_path)
    assert made_up.files(tmp_path) == before


def test_failure_of_the_caller_keeps_what_was_put(tmp_path: Path) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_up.write(tmp_path, after=interrupted)
    with Writer.open(tmp_path, made_up.header()) as writer:
        assert writer.resumed == 1 and (2, 0) in writer and (2, 1) not in writer
        assert list(writer.missing()) == [(2, 1), (2, 2), (4, 0), (4, 1), (4, 2)]


def test_threads_put_at_once(tmp_path: Path) -> None:
    of = made_up.header(layers=(0, 1), experts=40)
    data = made_up.records(of)
    made_up.write(tmp_path / "whole", of)
    with Writer.open(tmp_path / "c", of, sync_bytes=3 * made_up.SLOT) as writer:
        parts = [list(data)[first::4] for first in range(4)]

        def put(part: list[Key]) -> None:
            for key in part:
                writer.put(*key, data[key])

        threads = [threading.Thread(target=put, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.commit()
    assert made_up.files(tmp_path / "c") == made_up.files(tmp_path / "whole")


def test_failed_sync_counts_as_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdatasync

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageError, match="the device failed to write it"):
        made_up.write(tmp_path, sync_bytes=1)
    monkeypatch.setattr(os, "fdatasync", real)
    with Writer.open(tmp_path, made_up.header()) as writer:
        assert writer.resumed == 0


def test_record_that_rots_in_a_draft_is_found(tmp_path: Path) -> None:
    with Writer.open(tmp_path, made_up.header()) as writer:
        writer.put(2, 1, made_up.records(made_up.header())[2, 1])
    with (tmp_path / "draft.bin").open("r+b") as stream:
        stream.seek((2 * 3 + 1) * 12_288)
        stream.write(b"rot")
    made_up.write(tmp_path)
    with Container.open(tmp_path) as opened, pytest.raises(DamagedError, match="layer 2, expert 1"):
        opened.read(2, 1)


def test_commit_once(tmp_path: Path) -> None:
    with Writer.open(tmp_path, made_up.header()) as writer:
        for key in writer.missing():
            writer.put(*key, made_up.records(made_up.header())[key])
        writer.commit()
        with pytest.raises(StorageError, match="committed already"):
            writer.put(2, 0, bytes(made_up.SLOT))
    assert set(made_up.files(tmp_path)) == {"experts.json", Container.open(tmp_path).records.name}
