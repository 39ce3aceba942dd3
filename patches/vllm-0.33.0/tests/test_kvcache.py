"""`moet kvcache ttl` beside vLLM's own disk tier: what it deletes is a miss, not a retry and not garbage."""

import dataclasses
import hashlib
import itertools
import json
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.v1.core.kv_cache_planning import kv_cache_groups_tp_replicas
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor, MLAAttentionSpec
from vllm.v1.kv_offload.base import LookupResult, OffloadKey, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs import io
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from serving.kvcache import engine_files, tier, ttl
from serving.kvcache.engine_files import Kind
from serving.kvcache.ttl import Limits, Sweep
from tools.cli.errors import UserError

TP = 4
BLOCKS = 8
CHUNKS = 64
HOUR = 3600
# A request whose look-ups are not settled after so many steps is retried for ever.
STEPS = 500
STEP_END = ScheduleEndContext(new_req_ids=[], preempted_req_ids=())


class Silent:
    def start(self, what: str, total: int) -> None:
        pass

    def advance(self, amount: int) -> None:
        pass


def sweep(root: Path, hours: float = 72, cap: int = 10**15) -> Sweep:
    with tier.opened(root) as opened:
        done = ttl.sweep(opened, Limits(hours, cap), time.time(), Silent())
        assert opened.faults.told == []
        return done


def age(path: str, hours: float = 100) -> None:
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))


def key(number: int) -> OffloadKey:
    return make_offload_key(hashlib.sha256(number.to_bytes(8, "big")).digest(), 0)


def contents(number: int, size: int) -> bytes:
    return number.to_bytes(8, "big") * (size // 8)


class Engine:
    """The scheduler's side of vLLM's offloading, with a host and a disk tier; bytes are moved as a GPU would."""

    def __init__(self, spec: TieringOffloadingSpec) -> None:
        self.manager: Any = spec.get_manager()
        self.disk: FileSystemTierManager = self.manager.secondary_tiers[0]
        self.memory = self.manager.primary_tier.get_kv_memoryview().cast("B")
        self.size = spec.kv_bytes_per_chunk
        self.loads: list[list[OffloadKey]] = []
        self._requests = itertools.count()
        submit = self.disk.submit_load

        def counted(job: TransferJob) -> None:
            self.loads.append(list(job.keys))
            submit(job)

        self.disk.submit_load = counted

    def request(self) -> ReqContext:
        context = ReqContext(req_id=f"request-{next(self._requests)}")
        self.manager.on_new_request(context)
        return context

    def store(self, numbers: Sequence[int]) -> None:
        """A request that computes these blocks; at its end they are on disk, and no longer in host memory."""
        context = self.request()
        keys = [key(number) for number in numbers]
        prepared = self.manager.prepare_store(keys, context)
        assert list(prepared.keys_to_store) == keys
        for number, chunk in zip(numbers, prepared.store_spec.chunk_ids, strict=True):
            start = int(chunk) * self.size
            self.memory[start : start + self.size] = contents(number, self.size)
        self.manager.complete_store(keys, context)
        self.finish(context)
        self.forget()

    def step(self, context: ReqContext, numbers: Sequence[int]) -> list[LookupResult]:
        """What a scheduler's step asks; the caller ends the step."""
        return [self.manager.lookup(key(number), context) for number in numbers]

    def until(self, context: ReqContext, numbers: Sequence[int], settled: Callable[[list[LookupResult]], bool]) -> Any:
        """Steps until the answers are `settled`; the last step is not ended."""
        for _ in range(STEPS):
            results = self.step(context, numbers)
            if settled(results):
                return results
            self.manager.on_schedule_end(STEP_END)
            time.sleep(0.002)
        pytest.fail(f"after {STEPS} steps still {results}")

    def hits(self, context: ReqContext, numbers: Sequence[int]) -> list[int]:
        """Which of the blocks a request finds, each with the bytes that were stored."""
        waiting = {LookupResult.RETRY, LookupResult.HIT_PENDING}
        results = self.until(context, numbers, lambda each: not waiting & set(each))
        found = [number for number, result in zip(numbers, results, strict=True) if result is LookupResult.HIT]
        keys = [key(number) for number in found]
        for number, chunk in zip(found, self.manager.prepare_load(keys, context).chunk_ids, strict=True):
            start = int(chunk) * self.size
            assert self.memory[start : start + self.size] == contents(number, self.size)
        self.manager.complete_load(keys, context)
        self.manager.on_schedule_end(STEP_END)
        return found

    def finish(self, context: ReqContext) -> None:
        self.manager.on_request_finished(context)
        self.manager.on_schedule_end(STEP_END)

    def ask(self, numbers: Sequence[int]) -> list[int]:
        """Which of the blocks a new request finds, to its end."""
        context = self.request()
        found = self.hits(context, numbers)
        self.finish(context)
        return found

    def forget(self) -> None:
        """Nothing is left in host memory."""
        self.manager.reset_cache()
        self.manager.on_reset_flushed()

    def file(self, number: int) -> str:
        return self.disk.file_mapper.get_file_name(key(number))


@pytest.fixture
def config(serve_config: Callable[..., VllmConfig], tmp_path: Path) -> OffloadingConfig:
    """Four ranks with one copy of latent KV, a host tier, and a disk tier in tmp_path/kv."""
    spec = MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=576, dtype=torch.bfloat16, max_tp_shards=1)
    page = spec.page_size_bytes
    extra = {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": CHUNKS * page,
        "secondary_tiers": [{"type": "fs", "root_dir": str(tmp_path / "kv")}],
    }
    transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    groups = [KVCacheGroupSpec(["layer"], spec)]
    cache = KVCacheConfig(
        num_blocks=BLOCKS,
        kv_cache_tensors=[
            KVCacheTensor(size=page * BLOCKS, layers=["layer"], layer_stride=page * BLOCKS, block_stride=page)
        ],
        kv_cache_groups=groups,
    )
    cache.kv_tp_replicas = kv_cache_groups_tp_replicas(groups, TP)
    return build_offloading_config(serve_config("--kv-transfer-config", json.dumps(transfer)), cache)


@pytest.fixture
def engine(config: OffloadingConfig) -> Iterator[Engine]:
    running = Engine(TieringOffloadingSpec(config))
    yield running
    running.memory.release()
    running.manager.shutdown()


def test_tier_is_known_for_the_engines(engine: Engine, tmp_path: Path) -> None:
    engine.store(range(8))
    with tier.opened(tmp_path / "kv") as opened:
        (folder,) = opened.folders
        files = [file for leaf in opened.leaves(folder) for file in leaf.files]
    assert {file.name for file in files} == {Path(engine.file(number)).name for number in range(8)}
    assert {(file.kind, file.size) for file in files} == {(Kind.BLOCK, engine.size)}
    assert folder.config.tokens == (64,)


@pytest.mark.parametrize("model", ["/model", "deepseek/V4.1", "new\nline", "ümlaut \U0001f600 \udcff"])
@pytest.mark.parametrize("digits", [16, 32, 64])
@pytest.mark.parametrize("agnostic", [False, True])
def test_names_are_known_for_the_engines(model: str, digits: int, agnostic: bool) -> None:
    groups = [{"tokens_per_block": 64, "layer_names": ["a"]}, {"tokens_per_block": 128, "layer_names": ["b"]}]
    sizes = {"tp_size": TP, "pp_size": 1, "pcp_size": 1, "dcp_size": 1, "rank": 3}
    mapper = FileMapper(
        "/kv", model, 64, 2, **sizes, dtype="fp8_ds_mla", kv_cache_groups=groups, parallel_agnostic=agnostic
    )
    block_hash = hashlib.sha256(b"block").digest()[: digits // 2]
    root, rank, first, second, name = mapper.get_file_name(make_offload_key(block_hash, 12)).rsplit("/", 4)
    folder = mapper.get_config_file_path().split("/")[-2]
    assert root == "/kv"
    assert engine_files.base_of(rank) == engine_files.base_of(folder) == folder
    assert engine_files.is_first(first)
    assert engine_files.is_second(second)
    assert engine_files.kind_of(first, second, name) is Kind.BLOCK
    assert engine_files.kind_of(first, second, name + io._get_tmp_suffix()) is Kind.TEMPORARY
    config = engine_files.config_of(folder, json.dumps(mapper.get_run_config(), indent=2, sort_keys=True).encode())
    assert (config.model, config.dtype, config.tokens) == (model, "fp8_ds_mla", (128, 256))


def test_probe_is_known_for_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "remove", lambda path: None)
    io.probe_o_direct(str(tmp_path))
    (left,) = os.listdir(tmp_path)
    assert engine_files.is_probe(left)


def test_deleted_block_is_a_miss_and_can_come_back(engine: Engine, tmp_path: Path) -> None:
    engine.store(range(8))
    assert engine.ask(range(8)) == list(range(8))
    engine.forget()
    for number in (2, 5):
        age(engine.file(number))
    assert sweep(tmp_path / "kv").unused.files == 2
    assert engine.ask(range(8)) == [0, 1, 3, 4, 6, 7]
    assert [len(keys) for keys in engine.loads] == [8, 6]
    engine.store([2, 5])
    assert engine.ask(range(8)) == list(range(8))


def test_block_that_goes_between_look_up_and_load_is_tried_once(engine: Engine, tmp_path: Path) -> None:
    engine.store(range(8))
    first, second = engine.request(), engine.request()
    promised = engine.until(first, range(8), lambda each: LookupResult.RETRY not in each)
    assert set(promised) == {LookupResult.HIT_PENDING}
    assert set(engine.step(second, range(8))) == {LookupResult.HIT_PENDING}
    age(engine.file(3))
    assert sweep(tmp_path / "kv").unused.files == 1
    engine.manager.on_schedule_end(STEP_END)
    # A batch ends at the block that is gone: those after it are computed, though their files are there.
    assert engine.hits(first, range(8)) == [0, 1, 2]
    assert engine.hits(second, range(8)) == [0, 1, 2]
    engine.finish(first)
    engine.finish(second)
    # Whoever comes later finds what the disk has.
    assert engine.ask(range(8)) == [0, 1, 2, 4, 5, 6, 7]
    assert [len(keys) for keys in engine.loads] == [8, 4]


def test_block_that_goes_while_its_answer_is_kept_is_tried_once(engine: Engine, tmp_path: Path) -> None:
    engine.store(range(4))
    waiting = engine.request()
    assert engine.hits(waiting, range(4)) == list(range(4))
    engine.forget()
    for number in range(4):
        age(engine.file(number))
    assert sweep(tmp_path / "kv").unused.files == 4
    # The answers that `waiting` got are those of a new request too, once.
    assert engine.ask(range(4)) == []
    assert engine.ask(range(4)) == []
    assert engine.hits(waiting, range(4)) == []
    assert [len(keys) for keys in engine.loads] == [4, 4]


def test_load_is_a_use(engine: Engine, tmp_path: Path) -> None:
    engine.store(range(4))
    for number in range(4):
        age(engine.file(number))
    assert engine.ask(range(2)) == [0, 1]
    with tier.opened(tmp_path / "kv") as opened:
        noted = opened.access_times != "never"
    assert sweep(tmp_path / "kv").kept.files == (2 if noted else 0)
    assert [Path(engine.file(number)).exists() for number in range(4)] == [noted, noted, False, False]


def test_writing_over_a_dead_writers_file(engine: Engine, tmp_path: Path) -> None:
    dead = Path(engine.file(1) + io._get_tmp_suffix())
    dead.parent.mkdir(parents=True)
    dead.write_bytes(b"half")
    age(str(dead), 2)
    assert sweep(tmp_path / "kv").temporary.files == 1
    engine.store([1])
    assert engine.ask([1]) == [1]


def test_temporary_file_that_goes_while_it_is_written_fails_that_write_alone(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The C extension is the same but for this seam.
    monkeypatch.setattr(io, "_HAS_FSIO_C", False)
    replace = os.replace

    def late(source: str, target: str) -> None:
        if target == engine.file(1):
            age(source, 2)
            assert sweep(tmp_path / "kv").temporary.files == 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    engine.store([1])
    engine.store([2])
    assert engine.ask([1, 2]) == [2]
    monkeypatch.setattr(os, "replace", replace)
    engine.store([1])
    assert engine.ask([1, 2]) == [1, 2]


class Disk:
    """A disk tier alone, in `root`, over CHUNKS rows of a page; block `number` is written from row number % CHUNKS."""

    def __init__(self, config: OffloadingConfig, root: Path) -> None:
        memory = mmap.mmap(-1, 2 * CHUNKS * mmap.PAGESIZE)
        self.rows = np.frombuffer(memory, dtype=np.uint8).reshape(2 * CHUNKS, mmap.PAGESIZE)
        self.rows[:CHUNKS] = np.arange(1, CHUNKS + 1, dtype=np.uint8)[:, None]
        spec = SimpleNamespace(config=config, blocks_per_chunk=1)
        self.tier = FileSystemTierManager(spec, memoryview(self.rows), "fs", str(root))
        self._jobs = itertools.count()

    def store(self, numbers: Sequence[int]) -> bool:
        """Whether the whole batch was written."""
        return self._run(self.tier.submit_store, numbers, [number % CHUNKS for number in numbers]).success

    def load(self, numbers: Sequence[int]) -> int:
        """How many blocks of the batch were read, from its beginning; each has the bytes that it was written with."""
        rows = [CHUNKS + place for place in range(len(numbers))]
        self.rows[CHUNKS:] = 0
        result = self._run(self.tier.submit_load, numbers, rows)
        count = len(numbers) if result.success else len(result.successful_keys or ())
        for row, number in zip(rows[:count], numbers, strict=False):
            assert (self.rows[row] == number % CHUNKS + 1).all()
        return count

    def _run(self, submit: Callable[[TransferJob], None], numbers: Sequence[int], rows: list[int]) -> Any:
        keys = [key(number) for number in numbers]
        submit(TransferJob(next(self._jobs), keys, np.array(rows), False, ReqContext(req_id="request")))
        self.tier.drain_jobs()
        (result,) = self.tier.get_finished_jobs()
        return result


def test_config_that_was_cut_short_is_written_anew(config: OffloadingConfig, tmp_path: Path) -> None:
    disk = Disk(config, tmp_path)
    assert disk.store(range(4))
    path = Path(disk.tier.file_mapper.get_config_file_path())
    whole = path.read_bytes()
    disk.tier.shutdown()
    path.write_bytes(whole[:50])
    Disk(config, tmp_path).tier.shutdown()
    with pytest.raises(UserError, match="is not vLLM's"):
        sweep(tmp_path)
    path.unlink()
    Disk(config, tmp_path).tier.shutdown()
    assert path.read_bytes() == whole
    assert sweep(tmp_path).kept.files == 4


def test_ten_thousand_blocks_a_writer_and_a_reader(config: OffloadingConfig, tmp_path: Path) -> None:
    disk, batch, blocks = Disk(config, tmp_path / "kv"), 50, 10_000
    for start in range(0, blocks, batch):
        assert disk.store(range(start, start + batch))
    stop, written, read = threading.Event(), [], []

    def work() -> None:
        for start in itertools.count(blocks, batch):
            if stop.is_set():
                return
            written.append(disk.store(range(start, start + batch)))
            # Old blocks, which go, and new ones.
            read.append(disk.load(range(start % blocks, start % blocks + batch)))
            read.append(disk.load(range(start, start + batch)))

    worker = threading.Thread(target=work)
    cap = blocks // 2 * mmap.PAGESIZE
    # Once beforehand, so that some of the old blocks are gone however fast the writer is.
    deleted = sweep(tmp_path / "kv", cap=cap).over_cap.files
    worker.start()
    while len(written) < 40:
        assert worker.is_alive()
        deleted += sweep(tmp_path / "kv", cap=cap).over_cap.files
    stop.set()
    worker.join()
    last = sweep(tmp_path / "kv", cap=cap)
    disk.tier.shutdown()
    # No write was spoilt: neither a folder went nor a file that was being written.
    assert all(written)
    assert deleted + last.over_cap.files + last.kept.files == blocks + batch * len(written)
    assert last.kept.size <= cap
    assert 0 < sum(read) < batch * len(read)
    assert list((tmp_path / "kv").rglob("*.tmp")) == []
    assert {path.stat().st_size for path in (tmp_path / "kv").rglob("*.bin")} == {mmap.PAGESIZE}


@pytest.fixture
def small() -> Iterator[Path]:
    """A folder on a file system that a test may fill: the container's /dev/shm."""
    assert shutil.disk_usage("/dev/shm").total <= 1 << 28, "/dev/shm: expected 256 MiB at most"
    folder = Path("/dev/shm/moet-kvcache")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_full_disk(config: OffloadingConfig, small: Path) -> None:
    disk, batch = Disk(dataclasses.replace(config, engine_id="full"), small), 64
    batches = itertools.count()
    while disk.store(range((number := next(batches)) * batch, (number + 1) * batch)):
        pass
    failed = range(number * batch, (number + 1) * batch)
    held = sum(path.stat().st_size for path in small.rglob("*.bin"))
    assert held > 1 << 20
    assert list(small.rglob("*.tmp")) == []
    assert sweep(small, cap=held // 2).kept.size <= 0.9 * (held // 2)
    assert disk.store(failed)
    assert disk.load(failed) == batch
    disk.tier.shutdown()
