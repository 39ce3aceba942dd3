"""The oracle's records beside those of flashinfer's own writers, whose sources in the pinned wheel run on the host.

Of a writer all is compiled but its host code, which launches; the kernels themselves are as they are in the wheel.
"""

import ctypes
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kernels.common import formats
from kernels.kv_record import reference
from kernels.kv_record.reference import FP4, MXFP8, Record

SOURCES = "flashinfer/data/csrc/sparse_mla_sm120"
HEADERS = "flashinfer/data/include/flashinfer/attention/sparse_mla_sm120"
WRITERS = {528: "cake_dsv41_fp8_cache_ops.cu", 288: "dsv41_fp4_cache_ops.cu"}
# What the host does with tensors: from the first of these lines to the second, and from the third on.
CHECKS, CHECKS_END, LAUNCHES = "\nstruct PagedCacheInfo {", "\n// ", "\nvoid SparseMlaSm120"
LEFT_OUT = ('#include "../tvm_ffi_utils.h"', "#include <flashinfer/math.cuh>")
CALL = """
extern "C" void append(const void* rows, const int64_t* slots, int count, uint8_t* cache, int pages, int page,
                       size_t stride) {
    run_warps(count, [=] {
        flashinfer::sparse_mla_sm120::QuantizeAppendKernel<__nv_bfloat16, int64_t>(
            static_cast<const __nv_bfloat16*>(rows), slots, count, cache, pages, page, stride);
    });
}
"""

Append = Callable[[np.ndarray, np.ndarray, np.ndarray, int], None]
both_records = pytest.mark.parametrize("record", [MXFP8, FP4], ids=["mxfp8", "fp4"])


def kernels_of(source: str) -> str:
    """What the host can compile of a writer."""
    source = source[: source.index(LAUNCHES)] + "\n}  // namespace flashinfer::sparse_mla_sm120\n"
    first = source.index(CHECKS)
    source = source[:first] + source[source.index(CHECKS_END, first) :]
    for line in LEFT_OUT:
        source = source.replace(line, "")
    return source


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flashinfer")
    with zipfile.ZipFile(os.environ["FLASHINFER"]) as wheel:
        names = [name for name in wheel.namelist() if name.startswith((HEADERS, SOURCES)) and not name.endswith("/")]
        wheel.extractall(folder, names)
    for header in (folder / HEADERS).rglob("*.cuh"):
        header.write_text(header.read_text().replace(LEFT_OUT[1], ""))
    return folder


@pytest.fixture(scope="session")
def writers(unpacked: Path) -> dict[int, Append]:
    return {width: compiled(unpacked, name) for width, name in WRITERS.items()}


def compiled(unpacked: Path, name: str) -> Append:
    """Compiles a writer; returns a function of rows [n, 512], slots, memory [pages, stride] and rows a page."""
    source = unpacked / f"{name}.cpp"
    source.write_text(kernels_of((unpacked / SOURCES / name).read_text()) + CALL)
    library = unpacked / f"{name}.so"
    gxx = Path(os.environ["GCC"], "launch/g++").resolve()
    includes = [unpacked / HEADERS.split("/flashinfer/attention")[0], Path(os.environ["CUDA"], "nvidia/cu13/include")]
    command = [
        str(gxx),
        "-std=c++20",
        "-O1",
        "-shared",
        "-fPIC",
        "-pthread",
        "-static-libstdc++",
        "-static-libgcc",
        "-w",
    ]
    command += ["-include", os.environ["HOST_WARP"], *[f"-I{folder.resolve()}" for folder in includes]]
    subprocess.run([*command, str(source), "-o", str(library)], check=True, env={"PATH": "/usr/bin:/bin"})
    function = ctypes.CDLL(str(library)).append

    def append(rows: np.ndarray, slots: np.ndarray, memory: np.ndarray, page: int) -> None:
        patterns = np.ascontiguousarray(rows.view(np.uint32) >> 16, dtype=np.uint16)
        where = np.ascontiguousarray(slots, dtype=np.int64)
        function(
            patterns.ctypes.data_as(ctypes.c_void_p), where.ctypes.data_as(ctypes.c_void_p), len(where),
            memory.ctypes.data_as(ctypes.c_void_p), len(memory), page, ctypes.c_size_t(memory.shape[1]),
        )  # fmt: skip

    return append


def check(writers: dict[int, Append], record: Record, rows: np.ndarray, page: int = 32, padding: int = 0) -> None:
    """Compares every byte of some pages, with rows in any order and holes among them."""
    generator = np.random.default_rng(len(rows) + page)
    pages = -(-len(rows) // page) + 2
    slots = generator.permutation(pages * page)[: len(rows)]
    slots[generator.random(len(rows)) < 0.1] = -1
    slots[:1] = pages * page
    ours, theirs = (np.full((pages, page * record.width + padding), 0xA5, dtype=np.uint8) for _ in range(2))
    writers[record.width](rows, slots, theirs, page)
    inside = (slots >= 0) & (slots < pages * page)
    reference.store(ours, page, slots[inside], record.encode(rows[inside]))
    assert (theirs != 0xA5).any() and np.array_equal(ours, theirs)


def bf16(patterns: np.ndarray) -> np.ndarray:
    """Rows of numbers of bfloat16 by their bits."""
    numbers = np.asarray((patterns.astype(np.uint32) << 16).view(np.float32))
    return np.append(numbers, np.zeros(-numbers.size % 512, np.float32)).reshape(-1, 512)


@both_records
def test_every_bfloat16_beside_its_like(writers: dict[int, Append], record: Record) -> None:
    check(writers, record, bf16(np.arange(2**16)))


@both_records
@pytest.mark.parametrize("page", [32, 64, 128, 61])
@pytest.mark.parametrize("padding", [0, 512])
def test_every_bfloat16_beside_others(writers: dict[int, Append], record: Record, page: int, padding: int) -> None:
    order = np.random.default_rng(page + padding).permutation(2**16)
    check(writers, record, bf16(order), page, padding)
    finite = order[(order & 0x7F80) != 0x7F80]
    check(writers, record, bf16(finite), page, padding)


@both_records
def test_every_largest_value_of_a_group(writers: dict[int, Append], record: Record) -> None:
    magnitudes = np.arange(0x7F80)[:, None]
    below = np.maximum(magnitudes - np.arange(14) * 37 % 0x300, 0)
    check(writers, record, bf16(np.concatenate([magnitudes, magnitudes | 0x8000, below], axis=1).ravel()))


def test_ties_at_every_scale(writers: dict[int, Append]) -> None:
    scales = formats.decode_e4m3(np.arange(1, 0x7F, dtype=np.uint8)).astype(np.float32)[:, None]
    middle = scales * np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
    groups = np.concatenate([6 * scales, middle, -middle, 0 * scales], axis=1)
    patterns = groups.view(np.uint32) >> 16
    assert np.array_equal(bf16(patterns.ravel()).ravel()[: groups.size], groups.ravel())
    for neighbour in (-1, 0, 1):
        moved = patterns.astype(np.int64) + neighbour
        moved[:, 0], moved[:, -1] = patterns[:, 0], 0
        check(writers, FP4, bf16(moved.ravel()))


@both_records
def test_one_group_that_is_not_finite(writers: dict[int, Append], record: Record) -> None:
    rows = bf16(np.random.default_rng(1).permutation(0x7F80)[: 20 * 512])
    for row, values in enumerate([(np.inf,), (-np.inf,), (np.nan,), (np.inf, np.nan), (-np.inf, -1, np.inf)]):
        rows[row, 7 : 7 + len(values)] = values
    check(writers, record, rows)
