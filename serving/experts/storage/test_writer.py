import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
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

    def awaited(seed: int) -> None:
        while not opened[seed] and not failures:
            time.sleep(0.01)

    code = f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\n"
    code += "from serving.experts.storage import made_up\nof = made_up.header()\n"
    code += "for round in range(1, 60):\n"
    code += "    made_up.write(Path(sys.argv[1]), data=made_up.records(of, round % 2), replace=True)\n"
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    awaited(0)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    awaited(1)
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


def test_after_a_failed_sync_nothing_more_is_called_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of a failed write once, and it may have been another record's."""
    of, data, real = made_up.header(), made_up.records(made_up.header()), os.fdatasync
    failures = [OSError(5, "Input/output error")]

    def fail_once(fd: int) -> None:
        if failures:
            writer.put(2, 1, data[2, 1])
            raise failures.pop()
        real(fd)

    with suppress(StorageError), Writer.open(tmp_path, of) as writer:
        writer.put(2, 0, data[2, 0])
        monkeypatch.setattr(os, "fdatasync", fail_once)
        with pytest.raises(StorageError, match="the device failed to write it"):
            writer.flush()
        for again in (writer.flush, lambda: writer.put(2, 2, data[2, 2]), lambda: writer.commit(absent=True)):
            with pytest.raises(StorageError, match="the device failed to write it"):
                again()
        assert (2, 1) not in writer
    with Writer.open(tmp_path, of) as writer:
        assert writer.resumed == 0
    made_up.write(tmp_path)


def test_failed_sync_of_a_commit_is_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError(5, "Input/output error")]
    real = os.fsync

    def fail_once(fd: int) -> None:
        if os.fstat(fd).st_size == made_up.header().apparent and failures:
            raise failures.pop()
        real(fd)

    with suppress(StorageError), Writer.open(tmp_path, made_up.header()) as writer:
        for key, record in made_up.records(made_up.header()).items():
            writer.put(*key, record)
        monkeypatch.setattr(os, "fsync", fail_once)
        for _ in range(2):
            with pytest.raises(StorageError, match="the device failed to write it"):
                writer.commit()
    made_up.write(tmp_path)
    assert Container.open(tmp_path).read(2, 1) == made_up.records(made_up.header())[2, 1]


def harm(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9] + b"!" * 9)


def killed_in_commit(path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Leaves what a writer leaves that is stopped at a rename of its commit, the draft's own counted."""
    real = os.rename

    def stop(*arguments: object, **options: object) -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise KeyboardInterrupt
        real(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", stop)
        with pytest.raises(KeyboardInterrupt):
            made_up.write(path)


@pytest.mark.parametrize("renames", [2, 3])
def test_commit_whose_sidecar_was_damaged_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    made_up.write(tmp_path / "whole")
    killed_in_commit(tmp_path / "c", monkeypatch, renames)
    harm(tmp_path / "c" / "draft.sidecar")
    made_up.write(tmp_path / "c")
    assert made_up.files(tmp_path / "c") == made_up.files(tmp_path / "whole")


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


def test_draft_that_something_else_removes_is_no_commit(tmp_path: Path) -> None:
    def remove(_: Key) -> None:
        (tmp_path / "draft.bin").unlink(missing_ok=True)

    with pytest.raises(StorageError, match="something else removed or changed the draft"):
        made_up.write(tmp_path, after=remove)
    made_up.write(tmp_path)
    assert Container.open(tmp_path).read(2, 1) == made_up.records(made_up.header())[2, 1]
