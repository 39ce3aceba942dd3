import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common import planes
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import AlreadyCompleteError, StorageError
from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import MATRICES, Checkpoint
from tools.experts.quantize import facts, journal, numpy_form, run
from tools.experts.quantize.made_up import checkpoint, contents
from tools.experts.synthetic.models import MODELS
from tools.experts.synthetic.synthetic import write

FORK = multiprocessing.get_context("fork")


def quantize(source: Path, pack: Path, **given: Any) -> run.Result:
    with Checkpoint.open(source, given.pop("layers", None)) as opened:
        return run.run(opened, pack, **({"threads": 2} | given))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("delta", facts.DELTAS)
def test_pack_holds_what_the_numpy_form_makes(model: str, delta: str, tmp_path: Path) -> None:
    source = write(tmp_path / "model", model, layers=2, experts=2, hidden=128, intermediate=64)
    result = quantize(source, tmp_path / "pack", delta=delta)
    with Checkpoint.open(source) as opened, Container.open(tmp_path / "pack") as base:
        assert base.header.slot_bytes == planes.base_slot(128, 64) and base.header.checkpoint == opened.identity
        with Container.open(tmp_path / f"pack-{delta}") as behind:
            assert behind.content == result.delta_content
            for key in base.present():
                ones = [numpy_form.quantize(opened.read(*key, name), "auto") for name in MATRICES]
                expected, of_delta = numpy_form.records(ones, delta)
                assert bytes(base.read(*key)) == expected.tobytes()
                assert of_delta is not None and bytes(behind.read(*key)) == of_delta.tobytes()
                assert result.counts[key] == [one.counts for one in ones]
        assert len(base.present()) == 4 and base.content == result.content
    assert (result.resumed, result.read) == (0, 4 * opened.expert_bytes)


def test_bytes_depend_on_no_order(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model", experts=9)
    found = []
    for name, threads in (("a", 1), ("b", 7)):
        quantize(source, tmp_path / name / "pack", delta="quintal", threads=threads)
        found.append(contents(tmp_path / name / "pack", tmp_path / name / "pack-quintal"))
    assert found[0] == found[1]


# What a run changes the disk with.
CALLS = ("pwrite", "write", "fdatasync", "fsync", "ftruncate", "rename", "replace", "unlink", "open")


def dying(source: Path, pack: Path, at: int) -> None:
    """Runs, and is killed just before (odd `at`) or after (even) its at / 2-th change of the disk."""
    left = [at]

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            value = real(*given, **named)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        return call

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))
    with suppress(AlreadyCompleteError):
        quantize(source, pack, delta="quintal", sync_bytes=1)


def killed(source: Path, pack: Path, at: int) -> bool:
    """Whether the run was killed before its end."""
    child = FORK.Process(target=dying, args=(source, pack, at))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A checkpoint, and what an uninterrupted run makes of it."""
    folder = tmp_path_factory.mktemp("whole")
    source = checkpoint(folder / "model", layers=2, experts=2)
    quantize(source, folder / "pack", delta="quintal")
    return source, contents(folder / "pack", folder / "pack-quintal")


def test_killed_anywhere_and_run_again(whole: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    source, expected = whole
    at = deaths = 0
    while True:
        at += 3
        pack = tmp_path / str(at) / "pack"
        if not killed(source, pack, at):
            break
        deaths += 1
        with suppress(AlreadyCompleteError):
            quantize(source, pack, delta="quintal")
        assert contents(pack, pack.with_name("pack-quintal")) == expected, at
    assert deaths > 40


@pytest.mark.parametrize("step", [31, 44, 60])
def test_killed_again_and_again(step: int, whole: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    source, expected = whole
    pack, deaths = tmp_path / "pack", 0
    while killed(source, pack, step + deaths):
        deaths += 1
        assert deaths < 60
    assert deaths > 1
    assert contents(pack, tmp_path / "pack-quintal") == expected


def test_resumed_run_reads_only_what_is_missing(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model", experts=5)
    done: list[int] = []

    class EnoughError(Exception):
        pass

    def advance(size: int) -> None:
        done.append(size)
        if sum(done) >= 4 * 13056:
            raise EnoughError

    with pytest.raises(EnoughError):
        quantize(source, tmp_path / "pack", threads=1, advance=advance)
    again: list[int] = []
    result = quantize(source, tmp_path / "pack", advance=again.append)
    assert result.resumed == 4 and result.read == 6 * 13056
    assert again[0] == 4 * 13056 and sum(again) == 10 * 13056


def test_other_run_is_not_gone_on_with(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "pack", zero_mode="alt", advance=stop)
    with pytest.raises(StorageError, match=r"draft of something else .*zero_mode"):
        quantize(source, tmp_path / "pack", zero_mode="sign")
    quantize(source, tmp_path / "pack", zero_mode="sign", restart=True)
    quantize(source, tmp_path / "fresh/pack", zero_mode="sign")
    assert contents(tmp_path / "pack") == contents(tmp_path / "fresh/pack")


def test_finished_pack_is_kept(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")
    first = quantize(source, tmp_path / "pack")
    with pytest.raises(AlreadyCompleteError, match="is complete already"):
        quantize(source, tmp_path / "pack")
    with pytest.raises(StorageError, match="holds a finished container"):
        quantize(source, tmp_path / "pack", zero_mode="alt")
    assert quantize(source, tmp_path / "pack", zero_mode="alt", replace=True).content != first.content
    assert quantize(source, tmp_path / "pack", replace=True).content == first.content


def test_delta_may_come_later(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")
    quantize(source, tmp_path / "a")
    before = contents(tmp_path / "a")
    quantize(source, tmp_path / "a", delta="quintal")
    quantize(source, tmp_path / "b", delta="quintal", delta_path=tmp_path / "elsewhere")
    assert contents(tmp_path / "a") == before
    there, here = (next(path.glob("records-*")) for path in (tmp_path / "a-quintal", tmp_path / "elsewhere"))
    assert there.read_bytes() == here.read_bytes()


def test_layers_and_drafter(tmp_path: Path) -> None:
    source = write(tmp_path / "m", "deepseek-v4-flash", layers=3, experts=1, hidden=64, intermediate=64, drafter=True)
    result = quantize(source, tmp_path / "pack", layers=[1, 3])
    assert list(result.counts) == [(1, 0), (3, 0)]
    names = Container.open(tmp_path / "pack").header.extra["names"]
    assert [(one["first"], one["names"]["w2"]) for one in names] == [
        (0, "layers.{layer}.ffn.experts.{expert}.w2.weight"),
        (3, "mtp.{layer}.ffn.experts.{expert}.w2.weight"),
    ]


def test_expert_that_cannot_be_quantized_is_named(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model")
    with Checkpoint.open(source) as opened:
        tensor = opened._matrices[1, 2, "w3"]["scale"]
        with tensor.path.open("r+b") as file:
            file.seek(tensor.offset + 3)
            file.write(b"\xff")
    with pytest.raises(UserError) as error:
        quantize(source, tmp_path / "pack")
    where = "layer 1, expert 2: layers.1.ffn.experts.2.w3.weight: a scale is NaN; it cannot be quantized"
    assert str(error.value) == f"{source}: {where}"
    with pytest.raises(StorageError):
        Container.open(tmp_path / "pack")


MEASURE = """
import sys
from pathlib import Path
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.quantize import run

def kilobytes(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])

threads = int(sys.argv[3])
with Checkpoint.open(Path(sys.argv[1])) as checkpoint:
    before = kilobytes("VmRSS")
    run.run(checkpoint, Path(sys.argv[2]), delta="quintal", threads=threads)
    print(kilobytes("VmHWM") - before, run.buffer_bytes(checkpoint, "quintal", threads) // 1024)
"""


@pytest.mark.parametrize(
    ("threads", "layers", "experts", "size"), [(1, 2, 20, 1024), (4, 2, 20, 1024), (1, 10, 384, 64)]
)
def test_memory_stays_below_the_stated_bound(
    threads: int, layers: int, experts: int, size: int, tmp_path: Path
) -> None:
    """64 MiB in few experts, or many small ones; what comes on top is the interpreter's own, the same however many."""
    source = checkpoint(tmp_path / "model", layers, experts, size, size)
    command = [sys.executable, "-c", MEASURE, str(source), str(tmp_path / "pack"), str(threads)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    used, bound = map(int, subprocess.run(command, check=True, capture_output=True, env=environment).stdout.split())
    assert bound < 64 * 1024 / 2
    assert used < bound + 4 * 1024


def test_disk_that_is_full(tmp_path: Path) -> None:
    """The rest of a file is refused by the kernel; after that there is room again."""
    source = checkpoint(tmp_path / "model")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(StorageError, match="exceeds the largest file"):
            quantize(source, tmp_path / "pack")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    quantize(source, tmp_path / "pack")
    quantize(source, tmp_path / "fresh/pack")
    assert contents(tmp_path / "pack") == contents(tmp_path / "fresh/pack")


def test_journal_takes_only_whole_lines_of_its_own(tmp_path: Path) -> None:
    counts = [facts.Counts.of([at, *range(21)]) for at in range(3)]
    first = journal.Journal(tmp_path, "mine")
    for expert in range(3):
        first.put((0, expert), counts)
    first.close()
    lines = (tmp_path / journal.NAME).read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"1", b"2", 1)
    for damaged in (
        b"\n".join(lines[:3]) + b"\n" + lines[3][:40],
        b"\n".join([*lines[:3], b"\xff\xfe", lines[3][:-1]]),
    ):
        (tmp_path / journal.NAME).write_bytes(damaged)
        again = journal.Journal(tmp_path, "mine")
        assert again.all() == {(0, 0): counts}
        again.put((7, 7), counts)
        again.close()
        again = journal.Journal(tmp_path, "mine")
        assert again.all() == {(0, 0): counts, (7, 7): counts}
        again.close()
    other = journal.Journal(tmp_path, "another's")
    assert other.all() == {}
    other.close()


def test_report_is_in_the_pack(tmp_path: Path) -> None:
    result = quantize(checkpoint(tmp_path / "model"), tmp_path / "pack")
    kept = Container.open(tmp_path / "pack").header.extra["report"]
    assert kept == json.loads(json.dumps(result.report.document()))
    assert kept["tensors"] == 18 and kept["weights"] == 18 * 128 * 64
    assert np.isclose(sum(result.counts[0, 0][0].histogram), 128 * 64)
