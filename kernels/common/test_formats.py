import ml_dtypes
import numpy as np
import pytest
import torch

from kernels.common import formats

BYTES = np.arange(256, dtype=np.uint8)


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return np.array_equal(ours, theirs, equal_nan=True) and np.array_equal(np.signbit(ours), np.signbit(theirs))


def test_every_e4m3_byte() -> None:
    ours = formats.decode_e4m3(BYTES)
    theirs = BYTES.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert same(ours[~np.isnan(ours)], theirs[~np.isnan(ours)])
    assert np.array_equal(ours, torch.from_numpy(BYTES).view(torch.float8_e4m3fn).double().numpy(), equal_nan=True)


def test_every_e2m1_nibble() -> None:
    assert same(formats.E2M1_VALUES, np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64))
    low_first = formats.decode_e2m1(np.array([[0x21]], dtype=np.uint8))
    assert low_first.tolist() == [[0.5, 1.0]]


def test_every_ue8m0_byte() -> None:
    ours = formats.decode_ue8m0(BYTES)
    assert np.array_equal(ours, BYTES.view(ml_dtypes.float8_e8m0fnu).astype(np.float64), equal_nan=True)
    assert np.array_equal(ours, torch.from_numpy(BYTES).view(torch.float8_e8m0fnu).double().numpy(), equal_nan=True)
    assert ours[0] == 2.0**-127


def ties(values: np.ndarray) -> np.ndarray:
    return np.asarray((values[:-1] + values[1:]) / 2)


@pytest.mark.parametrize("sign", [1, -1])
def test_e4m3_rounds_as_ml_dtypes_and_torch_do(sign: int) -> None:
    magnitudes = formats.E4M3_VALUES[:127]
    generator = np.random.default_rng(1)
    values = sign * np.concatenate([magnitudes, ties(magnitudes), generator.uniform(0, 448, 20000), [2.0**-30]])
    ours = formats.encode_e4m3(values)
    assert np.array_equal(ours, values.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    torchs = torch.from_numpy(values.astype(np.float32)).to(torch.float8_e4m3fn).view(torch.uint8)
    assert np.array_equal(ours, torchs.numpy())


def test_e4m3_saturates() -> None:
    codes = formats.encode_e4m3(np.array([449.0, 1e9, np.inf, -np.inf, np.nan, 464.0]))
    assert codes.tolist() == [0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x7E]


def test_e2m1_rounds_as_ml_dtypes_does() -> None:
    magnitudes = formats.E2M1_VALUES[:8]
    generator = np.random.default_rng(2)
    values = np.concatenate([magnitudes, ties(magnitudes), generator.uniform(-6, 6, 20001)])
    nibbles = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert np.array_equal(formats.encode_e2m1(values), nibbles[0::2] | nibbles[1::2] << 4)
    assert formats.encode_e2m1(np.array([7.0, -1e9])).tolist() == [0xF7]


def test_bf16_rounds_as_ml_dtypes_does() -> None:
    generator = np.random.default_rng(3)
    values = generator.integers(0, 2**32, 200000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = np.concatenate([values, np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38], dtype=np.float32)])
    with np.errstate(over="ignore", invalid="ignore"):
        theirs = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(formats.round_bf16(values), theirs, equal_nan=True)


def test_bf16_spacing() -> None:
    assert formats.bf16_spacing(np.array([1.0, 1.99, 2.0, -256.0])).tolist() == [2**-7, 2**-7, 2**-6, 2.0]
