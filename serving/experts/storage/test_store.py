import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.cpu_experts import layout
from serving.experts.storage import made_up, survey
from serving.experts.storage.direct_io import Direct
from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container, Expect
from serving.experts.storage.writer import Writer
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.synthetic.synthetic import write
from tools.moet import main


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("model"), "deepseek-v4.1-flash", layers=3, experts=6, seed=1)


def moet(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.main(["experts", *map(str, arguments)])
    return status, out.getvalue(), err.getvalue()


def document(*arguments: object) -> tuple[int, dict[str, Any]]:
    status, out, _ = moet(*arguments, "--json")
    found: dict[str, Any] = json.loads(out)
    return status, found


def test_store_has_the_checkpoints_own_bytes(checkpoint: Path, tmp_path: Path) -> None:
    status, said = document("build-store", checkpoint, "--out", tmp_path, "--check", 7, "--seed", 3)
    assert status == 0 and said["written"] and said["records"] == 18 and len(said["compared"]) == 7
    with Checkpoint.open(checkpoint) as model, Container.open(tmp_path, Expect("mxfp4-store", model.identity)) as store:
        assert store.header.layers == model.layers and store.header.experts == 6
        record = layout.Record(model.hidden, model.intermediate)
        assert store.header.slot_bytes == record.size == 3 * model.hidden * model.intermediate * 17 // 32
        for key in store.present():
            found = layout.unpack_expert(record, np.frombuffer(store.read(*key), np.uint8))
            for name in ("w1", "w2", "w3"):
                there = model.read(*key, name)
                assert np.array_equal(found[name][0], there.codes) and np.array_equal(found[name][1], there.scales)


def test_shard_is_filled_up_to_whole_superblocks(tmp_path: Path) -> None:
    """w2 of a shard, found by the numbers of the documentation alone."""
    model = write(tmp_path / "model", "deepseek-v4.1-flash", layers=2, experts=2, hidden=256, intermediate=192, seed=2)
    assert moet("build-store", model, "--out", tmp_path / "store", "--check", 4)[0] == 0
    side = json.loads((tmp_path / "store" / "experts.json").read_text())
    assert side["slot_bytes"] == 256 * (2 * 192 + 256) * 17 // 32
    raw = next((tmp_path / "store").glob("records-*.bin")).read_bytes()
    with Checkpoint.open(model) as source:
        there = source.read(1, 1, "w2")
    record = (side["layers"].index(1) * side["experts"] + 1) * side["stride"]
    w2 = record + 2 * 192 * 256 * 17 // 32
    for row, column in ((0, 0), (37, 127), (37, 128), (255, 191)):
        superblock = w2 + (row // 16 * 2 + column // 128) * 1088
        block, within = column % 128 // 32, column % 32
        byte = raw[superblock + 64 + block * 256 + within // 8 * 64 + row % 16 * 4 + within % 8 // 2]
        assert raw[superblock + block * 16 + row % 16] == there.scales[row, column // 32]
        assert byte >> 4 * (column % 2) & 15 == there.codes[row, column // 2] >> 4 * (column % 2) & 15
    for row in (0, 240):
        last = w2 + (row // 16 * 2 + 1) * 1088
        assert not any(raw[last + 32 : last + 64]) and not any(raw[last + 64 + 512 : last + 1088])


def test_superblock_by_hand(checkpoint: Path, tmp_path: Path) -> None:
    """A weight of the store, found by the numbers of the documentation alone."""
    moet("build-store", checkpoint, "--out", tmp_path)
    raw = next(tmp_path.glob("records-*.bin")).read_bytes()
    side = json.loads((tmp_path / "experts.json").read_text())
    layer, expert, row, column = side["layers"][1], 4, 21, 3 * 32 + 17
    record = (layer * side["experts"] + expert) * side["stride"]
    superblock = record + (row // 16 * (side["extra"]["hidden"] // 128) + column // 128) * 1088
    block, within = column % 128 // 32, column % 32
    scale = raw[superblock + block * 16 + row % 16]
    byte = raw[superblock + 64 + block * 256 + within // 8 * 64 + row % 16 * 4 + within % 8 // 2]
    with Checkpoint.open(checkpoint) as model:
        there = model.read(layer, expert, "w1")
        assert scale == there.scales[row, column // 32]
        assert byte >> 4 * (column % 2) & 15 == there.codes[row, column // 2] >> 4 * (column % 2) & 15


def test_built_again_it_is_complete(checkpoint: Path, tmp_path: Path) -> None:
    moet("build-store", checkpoint, "--out", tmp_path / "a")
    before = made_up.files(tmp_path / "a")
    status, out, _ = moet("build-store", checkpoint, "--out", tmp_path / "a", "--check", 2)
    assert status == 0 and "is complete already" in out and "2 records compared" in out
    status, out, _ = moet("build-store", checkpoint, "--out", tmp_path / "b", "--workers", 1)
    assert status == 0 and made_up.files(tmp_path / "b") == before
    assert moet("build-store", checkpoint, "--out", tmp_path / "a", "--replace")[0] == 0
    assert made_up.files(tmp_path / "a") == before


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_it_goes_on(checkpoint: Path, tmp_path: Path, how: signal.Signals) -> None:
    moet("build-store", checkpoint, "--out", tmp_path / "whole")
    code = f"import sys; sys.path[:] = {sys.path!r}\nfrom serving.experts.storage import store, writer\n"
    code += "from tools.moet import main\nimport functools, itertools, time\n"
    code += "real, calls = store.pack, itertools.count(1)\n"
    # Records are made safe one by one, and one takes long, so that the signal finds it at work.
    code += "def stuck(*a):\n    time.sleep(5 if next(calls) == 9 else 0)\n    return real(*a)\n"
    code += "store.pack = stuck\n"
    code += "writer.Writer.open = functools.partial(writer.Writer.open, sync_bytes=1)\n"
    code += "sys.exit(main.main(['experts', 'build-store', *sys.argv[1:]]))\n"
    out = tmp_path / "c"
    command = [sys.executable, "-c", code, str(checkpoint), "--out", str(out), "--workers", "2"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = out / "draft.journal"
    while running.poll() is None and not (journal.exists() and journal.stat().st_size >= 60):
        time.sleep(0.01)
    os.kill(running.pid, how)
    _, said = running.communicate()
    assert running.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[how], said
    status, found = document("stat", out)
    assert status == 3 and found["container"] is None and 3 <= found["draft"]["records"] < 18
    status, found = document("build-store", checkpoint, "--out", out)
    assert status == 0 and found["resumed"] >= 3
    assert made_up.files(out) == made_up.files(tmp_path / "whole")


def test_check_finds_a_store_that_is_not_the_checkpoints(checkpoint: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "deepseek-v4.1-flash", layers=3, experts=6, seed=2)
    moet("build-store", other, "--out", tmp_path / "store")
    with Checkpoint.open(checkpoint) as model:
        identity = model.identity
    with Checkpoint.open(other) as model:
        same = model.identity == identity
    status, _, said = moet("build-store", checkpoint, "--out", tmp_path / "store", "--check", 18)
    assert status == 1
    # An identity is over names, shapes and configuration; weights alone may differ under the same.
    assert ("is not the checkpoint's" if same else "checkpoint") in said


def test_checkpoint_that_changed_after_it_was_stored(checkpoint: Path, tmp_path: Path) -> None:
    model = write(tmp_path / "model", "deepseek-v4.1-flash", layers=1, experts=2, seed=1)
    moet("build-store", model, "--out", tmp_path / "store")
    shard = next(model.glob("*.safetensors"))
    whole = bytearray(shard.read_bytes())
    half = len(whole) // 2
    whole[half:] = bytes(byte ^ 1 for byte in whole[half:])
    shard.write_bytes(whole)
    status, _, said = moet("build-store", model, "--out", tmp_path / "store", "--check", 2)
    assert status == 1 and "is not the checkpoint's: the store or the checkpoint changed" in said


def test_checkpoint_of_another_scheme(tmp_path: Path) -> None:
    model = write(tmp_path / "model", "glm-5.2-nvfp4", layers=1, experts=2)
    status, _, said = moet("build-store", model, "--out", tmp_path / "store")
    assert status == 1 and "its experts are nvfp4" in said and "moet experts quantize" in said
    assert not (tmp_path / "store").exists()


def test_no_checkpoint(tmp_path: Path) -> None:
    status, _, said = moet("build-store", tmp_path / "x", "--out", tmp_path / "store")
    assert status == 1 and "config.json" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("given", [["--check", "-1"], ["--workers", "0"], ["--check", "x"], []])
def test_wrong_usage(checkpoint: Path, tmp_path: Path, given: list[str]) -> None:
    out = ["--out", tmp_path] if given else []
    with pytest.raises(SystemExit) as ended, redirect_stderr(io.StringIO()) as said:
        main.main(["experts", "build-store", str(checkpoint), *map(str, out), *given])
    assert ended.value.code == 2
    assert (": expected" if given else "--out") in said.getvalue()


def test_stat_says_what_there_is(tmp_path: Path) -> None:
    of = made_up.header(layers=(60,), zero_mode="alt")
    data = made_up.records(of)
    made_up.write(tmp_path, of, {key: data[key] for key in list(data)[:2]})
    status, found = document("stat", tmp_path)
    one = found["container"]
    assert status == 0 and found["schema"] == "moet.experts-stat.v1" and found["draft"] is None
    assert (one["kind"], one["checkpoint"], one["zero_mode"]) == ("w2-pack", made_up.CHECKPOINT, "alt")
    assert (one["records"], one["records_total"], one["damaged"]) == (2, 3, None)
    assert one["apparent"] == 61 * 3 * 12_288 + 4096 and one["allocated"] < 100_000
    assert set(found["here"]) >= {"O_DIRECT", "io_uring", "mlock"}
    status, out, _ = moet("stat", tmp_path)
    assert status == 0 and "2 of 3" in out and "not compared (--verify)" in out


def test_stat_verify_names_damaged_records(tmp_path: Path) -> None:
    of = made_up.header(experts=20)
    made_up.write(tmp_path, of)
    status, out, _ = moet("stat", tmp_path, "--verify")
    assert status == 0 and "40 of 40 right" in out
    with next(tmp_path.glob("records-*.bin")).open("r+b") as stream:
        for key in ((2, 7), (4, 19)):
            stream.seek(of.offset(*key) + of.slot_bytes - 3)
            stream.write(b"rot")
    status, found = document("stat", tmp_path, "--verify")
    assert status == 3 and found["container"]["damaged"] == [[2, 7], [4, 19]]
    status, out, _ = moet("stat", tmp_path, "--verify")
    assert status == 3 and "damaged: layer 2, expert 7" in out and "38 of 40 right" in out


def test_stat_verify_goes_on_past_what_the_device_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {(2, 3), (2, 4), (4, 0)}

    class Disk(Direct):
        def settle(self, keys: Sequence[Key], due: Sequence[bool], came: Sequence[tuple[int, int, int]]) -> None:
            came = [(errno.EIO, 0, 0) if key in lost else one for key, one in zip(keys, came, strict=True)]
            super().settle(keys, due, came)

    monkeypatch.setattr(survey, "Direct", Disk)
    of = made_up.header(experts=20)
    made_up.write(tmp_path, of)
    with next(tmp_path.glob("records-*.bin")).open("r+b") as stream:
        stream.seek(of.offset(2, 5))
        stream.write(b"rot")
    status, found = document("stat", tmp_path, "--verify")
    assert status == 3 and found["container"]["damaged"] == [[2, 5]]
    assert found["container"]["unreadable"] == sorted(map(list, lost))
    assert found["container"]["verified_bytes"] == 37 * of.slot_bytes
    status, out, _ = moet("stat", tmp_path, "--verify")
    assert status == 3 and "36 of 40 right" in out and "unreadable: layer 4, expert 0" in out
    assert "3 records that the device does not give (input/output error): look at the kernel's log" in out


def test_stat_of_a_whole_container_beside_a_damaged_draft(tmp_path: Path) -> None:
    made_up.write(tmp_path)
    (tmp_path / "draft.json").write_text('{"schema": "x')
    (tmp_path / "draft.journal").write_bytes(b"")
    status, found = document("stat", tmp_path, "--verify")
    assert status == 0 and found["container"]["damaged"] == [] and found["draft"] is None
    assert "draft.json" in found["draft_problem"]
    status, out, _ = moet("stat", tmp_path)
    assert status == 0 and "draft: " in out and "draft.json" in out
    next(tmp_path.glob("experts.json")).unlink()
    status, out, said = moet("stat", tmp_path)
    assert status == 1 and out == "" and "draft.json" in said and len(said.splitlines()) == 1


def test_stat_of_what_is_no_container(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "x"):
        status, out, said = moet("stat", path)
        assert status == 1 and out == "" and "expected the folder of a container" in said


def test_stat_of_a_container_that_is_being_replaced(tmp_path: Path) -> None:
    made_up.write(tmp_path)
    with Writer.open(tmp_path, made_up.header(tag="next"), replace=True) as writer:
        writer.put(2, 0, bytes(made_up.SLOT))
        writer.flush()
        status, found = document("stat", tmp_path)
    assert status == 0 and found["container"]["tag"] == "made up"
    assert found["draft"] == {"kind": "w2-pack", "records": 1, "records_total": 6, "holder": f"process {os.getpid()}"}
