"""The layout against its definition, written out byte by byte."""

import numpy as np
import pytest

from kernels.cpu_experts import layout
from kernels.cpu_experts.layout import Record


def random_matrix(rows: int, inputs: int, seed: int) -> tuple[layout.Bytes, layout.Bytes]:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 256, (rows, inputs // 2), dtype=np.uint8)
    return codes, random.integers(0, 256, (rows, inputs // 32), dtype=np.uint8)


def test_sizes() -> None:
    assert layout.SUPERBLOCK == 1088 == 17 * 64
    assert Record(5120, 2304).size == 18_800_640
    for hidden, intermediate in ((128, 128), (4096, 2048), (7168, 2048), (5120, 1152)):
        record = Record(hidden, intermediate)
        assert record.size * 32 == 3 * hidden * intermediate * 17
        assert [record.offset(name) for name in layout.MATRICES] == [0, record.size // 3, 2 * record.size // 3]


def test_every_nibble_is_where_the_definition_says() -> None:
    rows, inputs = 32, 256
    codes, scales = random_matrix(rows, inputs, 1)
    flat = layout.pack_matrix(codes, scales)
    for row in range(rows):
        for k in range(inputs):
            begin = (row // 16 * (inputs // 128) + k // 128) * 1088
            block, quarter, byte = k % 128 // 32, k % 32 // 8, k % 8 // 2
            packed = flat[begin + 64 + block * 256 + quarter * 64 + row % 16 * 4 + byte]
            assert packed >> 4 * (k % 2) & 15 == codes[row, k // 2] >> 4 * (k % 2) & 15
            assert flat[begin + block * 16 + row % 16] == scales[row, k // 32]


def test_inputs_that_do_not_fill_a_superblock() -> None:
    """A shard of an expert: 2304 / 4. The last superblocks are filled up with codes and scales of 0."""
    record = Record(5120, 576)
    assert record.matrix_bytes("w1") == 5120 * 576 * 17 // 32
    assert record.matrix_bytes("w2") == 5120 * 640 * 17 // 32
    assert record.size == 5120 * (2 * 576 + 640) * 17 // 32 == 4_874_240
    codes, scales = random_matrix(32, 192, 6)
    codes |= 0x11
    scales |= 1
    flat = layout.pack_matrix(codes, scales)
    wide_codes, wide_scales = np.zeros((32, 128), np.uint8), np.zeros((32, 8), np.uint8)
    wide_codes[:, :96], wide_scales[:, :6] = codes, scales
    assert np.array_equal(flat, layout.pack_matrix(wide_codes, wide_scales))
    found = layout.unpack_matrix(flat, 32, 192)
    assert np.array_equal(found[0], codes)
    assert np.array_equal(found[1], scales)
    assert all(part.flags.c_contiguous for part in found)
    small = Record(128, 32)
    matrices = {name: random_matrix(*small.shape(name), seed) for seed, name in enumerate(layout.MATRICES)}
    back = layout.unpack_expert(small, layout.pack_expert(small, matrices))
    for name, pair in matrices.items():
        assert all(np.array_equal(one, other) for one, other in zip(back[name], pair, strict=True))


@pytest.mark.parametrize(("hidden", "intermediate"), [(128, 128), (256, 384), (640, 128)])
def test_back_exactly(hidden: int, intermediate: int) -> None:
    record = Record(hidden, intermediate)
    matrices = {name: random_matrix(*record.shape(name), seed) for seed, name in enumerate(layout.MATRICES)}
    flat = layout.pack_expert(record, matrices)
    # The same bytes in another order.
    given = np.concatenate([part.reshape(-1) for pair in matrices.values() for part in pair])
    assert np.array_equal(np.sort(given), np.sort(flat))
    found = layout.unpack_expert(record, flat)
    for name, (codes, scales) in matrices.items():
        assert np.array_equal(found[name][0], codes)
        assert np.array_equal(found[name][1], scales)


def test_into_memory_that_is_given() -> None:
    record = Record(128, 256)
    matrices = {name: random_matrix(*record.shape(name), 3) for name in layout.MATRICES}
    arena = np.full(record.size + 2, 77, np.uint8)
    out = arena[1:-1]
    assert layout.pack_expert(record, matrices, out=out) is out
    assert np.array_equal(out, layout.pack_expert(record, matrices))
    assert arena[0] == arena[-1] == 77


def test_strided_codes() -> None:
    codes, scales = random_matrix(16, 256, 4)
    wide = np.zeros((16, 256), np.uint8)
    wide[:, ::2] = codes
    assert np.array_equal(layout.pack_matrix(wide[:, ::2], scales), layout.pack_matrix(codes, scales))


@pytest.mark.parametrize(("hidden", "intermediate"), [(0, 128), (128, 0), (-128, 128), (576, 128), (128, 560)])
def test_dimensions_that_do_not_fit(hidden: int, intermediate: int) -> None:
    wrong = "hidden is .* positive multiple of 128" if hidden != 128 else "intermediate is .* positive multiple of 32"
    with pytest.raises(ValueError, match=wrong):
        Record(hidden, intermediate)


def test_misuse() -> None:
    codes, scales = random_matrix(16, 128, 5)
    record = Record(128, 128)
    with pytest.raises(ValueError, match="expected multiples of 16 rows"):
        layout.pack_matrix(codes[:8], scales[:8])
    with pytest.raises(ValueError, match="and 32 inputs"):
        layout.pack_matrix(codes[:, :24], scales)
    with pytest.raises(ValueError, match=r"scales of the matrix: uint8 \(16, 2\)"):
        layout.pack_matrix(codes, scales[:, :2])
    with pytest.raises(ValueError, match="codes of the matrix: int8"):
        layout.pack_matrix(codes.view(np.int8), scales)
    with pytest.raises(ValueError, match="two dimensions"):
        layout.pack_matrix(codes[0], scales[0])
    with pytest.raises(ValueError, match="expected contiguous"):
        layout.pack_matrix(codes, scales, out=np.zeros(1087, np.uint8))
    with pytest.raises(ValueError, match="1087 x uint8; expected 1088"):
        layout.unpack_matrix(np.zeros(1087, np.uint8), 16, 128)
    with pytest.raises(ValueError, match="matrices"):
        layout.pack_expert(record, {"w1": (codes, scales)})
    with pytest.raises(ValueError, match="codes of w1"):
        layout.pack_expert(record, dict.fromkeys(layout.MATRICES, (codes, scales)))
    with pytest.raises(ValueError, match="record"):
        layout.unpack_expert(record, np.zeros(record.size - 1, np.uint8))
