"""Number formats of the kernels, in plain numpy: what a byte means, and the nearest byte to a number.

Everything rounds to nearest, ties to even, unless it says otherwise.
"""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]

# Elements that share one scale.
BLOCK = 32

E4M3_MAX = 448.0
E2M1_MAX = 6.0


def _e4m3_value(code: int) -> float:
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def _e2m1_value(code: int) -> float:
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, code >> 1 & 3, code & 1
    return sign * (mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1))


E4M3_VALUES: Doubles = np.array([_e4m3_value(code) for code in range(256)])
E2M1_VALUES: Doubles = np.array([_e2m1_value(code) for code in range(16)])


def decode_e4m3(codes: Bytes) -> Doubles:
    """Values of E4M3 bytes (the variant without infinities; 0x7f and 0xff are NaN)."""
    return E4M3_VALUES[codes]


def decode_e2m1(packed: Bytes) -> Doubles:
    """Values of E2M1 nibbles, two a byte along the last dimension, the low nibble first."""
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1)
    return E2M1_VALUES[nibbles].reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def decode_ue8m0(codes: Bytes) -> Doubles:
    """Values of UE8M0 bytes: 2^(byte - 127), of which 0 is 2^-127 and 255 is NaN."""
    values = np.exp2(codes.astype(np.float64) - 127)
    return np.where(codes == 255, np.nan, values)


def _nearest(values: Doubles, magnitudes: Doubles) -> Bytes:
    """Index of the nearest of ascending `magnitudes`; of two as near, the even one; beyond the last, the last."""
    at = np.clip(np.searchsorted(magnitudes, values), 1, len(magnitudes) - 1)
    below, above = values - magnitudes[at - 1], magnitudes[at] - values
    lower = (below < above) | ((below == above) & (at % 2 == 1))
    index: Bytes = (at - lower).astype(np.uint8)
    return index


def encode_e4m3(values: Doubles) -> Bytes:
    """The nearest E4M3 bytes. What is larger than 448, infinity too, becomes 448; NaN stays NaN."""
    values = np.asarray(values, dtype=np.float64)
    codes = _nearest(np.abs(np.nan_to_num(values, nan=0.0, posinf=E4M3_MAX, neginf=-E4M3_MAX)), E4M3_VALUES[:127])
    return np.where(np.isnan(values), 0x7F, codes | (np.signbit(values) * 0x80)).astype(np.uint8)


def encode_e2m1(values: Doubles) -> Bytes:
    """The nearest E2M1 nibbles, two a byte along the last dimension. What is larger than 6 becomes 6; no NaN."""
    values = np.asarray(values, dtype=np.float64)
    codes = _nearest(np.abs(values), E2M1_VALUES[:8]) | (np.signbit(values) * 8).astype(np.uint8)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def round_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest bfloat16, as float32; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), rounded).astype(np.float32)


def bf16_spacing(values: Doubles) -> Doubles:
    """The distance between neighbouring bfloat16 at these magnitudes."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**-126)))
    spacing: Doubles = np.exp2(exponent - 7)
    return spacing
