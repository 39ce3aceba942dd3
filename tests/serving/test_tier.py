"""A disk tier of 10,000 blocks that is trimmed, at short intervals, beside a server and a writer at work."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.kvcache.fake_tier import FakeTier
from tests.release.toy import LINE
from tests.serving.operator import FIRST, Operator

_BLOCKS = 10_000
_OLD_HOURS, _HOURS = 100.0, 72


@contextmanager
def writer(tier: FakeTier) -> Iterator[list[Path]]:
    """Writes blocks as fast as it can, as an engine does: a temporary file, then its name; yields the blocks."""
    written: list[Path] = []
    failed: list[OSError] = []
    stop = threading.Event()

    def write() -> None:
        number = _BLOCKS
        while not stop.is_set():
            number += 1
            try:
                written.append(tier.add(number))
            except OSError as error:
                failed.append(error)
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def test_trimmed_while_it_is_written(operator: Operator) -> None:
    folder = operator.host.folder / "kv"
    folder.mkdir()
    os.chown(folder, 1000, 1000)
    settings = ("KV_OFFLOAD_GIB=1", f"KV_OFFLOAD_FS_DIR={folder}")
    outcome = operator.run("up", LINE, FIRST, *(f"--set={one}" for one in settings))
    assert outcome.status == 0, outcome.errors
    tier = FakeTier(folder / "fp8_ds_mla-indexer-fp8").make()
    blocks = [tier.add(number, hours=_OLD_HOURS if number % 2 else 0) for number in range(_BLOCKS)]
    half_written = tier.add_temporary(_BLOCKS)
    deleted = 0
    with writer(tier) as written:
        for turn in range(3):
            trim = ["kvcache", "ttl", str(folder), "--hours", str(_HOURS), "--max-gb", "1", "--json"]
            done = operator.wait(operator.begin_words(trim))
            assert done.status == 0, done.errors
            found = json.loads(done.output)
            deleted += found["unused"]["files"]
            assert found["over_cap"]["files"] == 0 and found["temporary"]["files"] == (1 if turn == 0 else 0)
            operator.serves(1)
    assert deleted == _BLOCKS // 2 and not half_written.exists()
    assert [path.exists() for path in blocks] == [number % 2 == 0 for number in range(_BLOCKS)]
    assert len(written) > 100 and all(path.exists() for path in written)
    looked = operator.wait(operator.begin_words(["kvcache", "stat", str(folder), "--json"]))
    assert looked.status == 0, looked.errors
