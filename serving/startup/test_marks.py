"""Every text that a start is read by, against the programs that write it."""

import os
import zipfile
from pathlib import Path

import pytest

from serving.startup import phases, problems

WHEELS = {name: os.environ.get(f"MOET_{name.upper()}_WHEEL", "") for name in ("uvicorn", "vllm")}
TEXTS = [
    *((mark.file, mark.text) for mark in phases.MARKS),
    *((file, text) for text, file in phases.BARS),
    *((one.file, one.text) for one in problems.PROBLEMS if one.file != "torch"),
    *(("vllm/v1/engine/utils.py", text) for text in problems.SECOND_HAND[:1]),
    *(("vllm/v1/executor/multiproc_executor.py", text) for text in problems.SECOND_HAND[1:]),
    ("vllm/model_executor/model_loader/weight_utils.py", '"{desc}: {percentage:3.0f}% Completed | {n_fmt}/{total'),
    ("vllm/logger.py", '"pid=%(process)d) %(levelname)s %(asctime)s "\n    "[%(fileinfo)s:%(lineno)d] %(message)s"'),
    # Names of regions in /dev/shm, as shared_memory.py knows them.
    ("vllm/v1/kv_offload/cpu/shared_offload_region.py", 'self.mmap_path = f"/dev/shm/vllm_offload_{engine_id}.mmap"'),
    ("vllm/v1/kv_offload/cpu/shared_offload_region.py", 'f"{self.mmap_path}.{i}" if i else self.mmap_path,'),
    ("vllm/v1/kv_offload/cpu/shared_offload_region.py", "expected_size: int, timeout: float = 30.0) -> None:"),
    ("vllm/config/kv_transfer.py", "self.engine_id = str(uuid.uuid4())"),
    ("vllm/v1/engine/core.py", 'f"{vllm_config.kv_transfer_config.engine_id}_dp{dp_rank}"'),
    ("vllm/logger.py", '_DATE_FORMAT = "%m-%d %H:%M:%S"'),
]


@pytest.mark.parametrize(("file", "text"), TEXTS, ids=[f"{file}: {text[:30]}" for file, text in TEXTS])
def test_text_is_in_the_file_that_writes_it(file: str, text: str) -> None:
    wheel = WHEELS.get(file.partition("/")[0])
    if wheel is None:
        assert text in Path(file).read_text(encoding="utf-8")
        return
    assert wheel, "MOET_VLLM_WHEEL and MOET_UVICORN_WHEEL: expected the wheels that the image is made of"
    with zipfile.ZipFile(wheel) as opened:
        assert text in opened.read(file).decode()
