"""Disks that are full: of the state, and of the caches."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.release.toy import LINE
from tests.serving.operator import FIRST, OTHER, Operator


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Not one more byte fits there."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (4096, 1):
            try:
                while out.write(b"x" * size):
                    pass
            except OSError:
                continue
    try:
        yield
    finally:
        filler.unlink()


def test_state_is_full_to_begin_with(operator: Operator) -> None:
    with small_disk(operator.host.state, "256k"):
        assert operator.run("up", LINE, FIRST).status == 0
        before = operator.server
        with full(operator.host.state):
            outcome = operator.run("up", LINE, OTHER)
            assert outcome.status == 1 and "No space left on device" in outcome.last, outcome
            assert operator.server == before
            operator.serves(1)
            status = operator.run("status")
            assert status.status == 0, status
        assert operator.run("up", LINE, OTHER).status == 0
        operator.serves(2)


def test_state_gets_full_while_a_generation_starts(operator: Operator) -> None:
    with small_disk(operator.host.state, "256k"):
        assert operator.run("up", LINE, FIRST).status == 0
        operator.host.behave(hang_at="weights")
        running = operator.begin("up", LINE, OTHER)
        operator.until(operator.starting)
        with full(operator.host.state):
            operator.host.behave()
            outcome = operator.wait(running)
            assert outcome.status and "No space left on device" in outcome.last, outcome
            assert "\n" not in outcome.last and operator.phase == "starting" and operator.answers()
        again = operator.run("up", LINE, OTHER)
        assert again.status == 0, again.errors
        operator.serves(2)


def test_caches_are_full(operator: Operator) -> None:
    """The server starts all the same here; that its first start is done cannot be noted, which is said."""
    cache = operator.host.folder / "small"
    with small_disk(cache, "64k"):
        os.chown(cache, 1000, 1000)
        with full(cache):
            refused = operator.run("up", LINE, "--set", f"CACHE_DIR={cache}")
            assert refused.status == 1 and "preflight: CACHE_DIR" in refused.last, refused
            outcome = operator.run("up", LINE, "--set", f"CACHE_DIR={cache}", "--no-preflight")
            assert outcome.status == 0 and "the next start is a first one again" in outcome.errors, outcome
        operator.serves(1)
        assert operator.run("down").status == 0
