"""The CPU tier's contract in numpy: integers, and fp32 operations in one order. Bits, not tolerances.

A block of 32 activations becomes integers q = rint(x * 2^(14 - e)), |q| <= 32639, where 2^e is the power of two below
its largest magnitude, and e at least -111; with 8 bits instead of 16, q = rint(x * 2^(6 - e)), |q| <= 127. A block of a
dot product is a sum of q times twice the code's value: below 2^24, so exact in any order. Blocks are added in their
order, each with one rounding: acc = fma(float(sum), unit * scale, acc) with unit = 2^(e - 15), or 2^(e - 7).

Values that are no numbers: a block with Inf or NaN makes NaN of all that it goes into, as the scale 255 does; the scale
0 is 2^-127. Activations below 2^-126 are 0, and products of unit and scale round as fp32 does: what overflows is Inf,
and NaN where the sum is 0. Denormals are kept. All NaN come out as 0x7fc00000, or 0x7fc0 in bfloat16.

SwiGLU: silu(min(g, limit)) * clamp(u, -limit, limit), with an exponential of its own, rounded to bfloat16. Below -87
the gate counts as -87, so that -Inf gives 0 to within 2e-36.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layout import BLOCK, Record, unpack_expert

Floats = NDArray[np.float32]
Number = Floats | np.float32
Doubles = NDArray[np.float64]
Words = NDArray[np.uint16]
Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]

TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int64)
_MAGIC = np.float32(12582912)


def from_bfloat16(words: Words) -> Floats:
    """The values of bfloat16 words."""
    return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: Floats) -> Words:
    """Nearest bfloat16, ties to even, as words; NaN is 0x7fc0."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))


def fma(a: Number, b: Number, c: Number) -> Floats:
    """Fused: a * b + c in fp32 with one rounding: the product is exact in fp64, the sum there is rounded to odd."""
    with np.errstate(all="ignore"):
        product = np.float64(1) * a * b
        total = product + c
        virtual = total - product
        error = (product - (total - virtual)) + (c - virtual)
        even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
        inexact = np.isfinite(total) & (error != 0) & even.reshape(total.shape)
        odd = np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
        return np.asarray(odd.astype(np.float32))


@dataclass(frozen=True)
class Quantized:
    """Activations as integers: q [tokens, inputs] and unit [tokens, inputs / 32], half of what 1 is worth."""

    q: Integers
    unit: Floats


def quantize(x: Words, bits: int = 16) -> Quantized:
    """Blocks of 32 of bfloat16 words [tokens, inputs], to 16 or 8 bits."""
    shift, top = {16: (14, 32639), 8: (6, 127)}[bits]
    blocks = x.reshape(x.shape[0], -1, BLOCK)
    largest = (blocks & 0x7FFF).max(axis=2).astype(np.int64)
    finite = largest < 0x7F80
    exponent = np.maximum(largest >> 7, 16) - 127
    safe = np.where(finite[:, :, None], from_bfloat16(blocks), np.float32(0)).astype(np.float64)
    q = np.clip(np.rint(safe * np.exp2(np.where(finite, shift - exponent, 0))[:, :, None]), -top, top)
    unit = np.where(finite, np.exp2(exponent - shift - 1.0), np.nan).astype(np.float32)
    return Quantized(q.astype(np.int64).reshape(x.shape), unit)


def scale_values(scales: Bytes) -> Floats:
    """UE8M0 as fp32: 2^(byte - 127), NaN for 255."""
    return np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127)).astype(np.float32)


def twice_values(codes: Bytes) -> Integers:
    """Twice the values of codes [rows, inputs / 2]: [rows, inputs]."""
    return TWICE[np.stack([codes & 15, codes >> 4], axis=2).reshape(codes.shape[0], -1)]


def times(codes: Bytes, scales: Bytes, x: Quantized) -> Floats:
    """Products of a matrix [rows, inputs] and tokens: [tokens, rows]."""
    rows, blocks = scales.shape
    weights = twice_values(codes).reshape(rows, blocks, BLOCK)
    tokens = x.q.reshape(-1, blocks, BLOCK)
    scale = scale_values(scales)
    total = np.zeros((tokens.shape[0], rows), np.float32)
    for block in range(blocks):
        # As float64 these are exact, and BLAS may take them in any order.
        dot = tokens[:, block].astype(np.float64) @ weights[:, block].astype(np.float64).T
        with np.errstate(all="ignore"):
            worth = x.unit[:, block, None] * scale[None, :, block]
        total = fma(dot.astype(np.float32), worth, total)
    return total


def exponential(x: Floats) -> Floats:
    """exp(x) for -87 <= x <= 87: 2^n times a polynomial of degree 6."""
    f = np.float32
    shifted = fma(x, f(1.44269504), _MAGIC)
    n = shifted - _MAGIC
    r = fma(n, f(-0.693359375), x)
    r = fma(n, f(2.12194440e-4), r)
    p: Floats = np.full_like(r, 1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, f(term))
    p = fma(p, r * r, r) + f(1)
    return p * ((np.ascontiguousarray(shifted).view(np.uint32) << np.uint32(23)) + np.uint32(0x3F800000)).view(f)


def swiglu(gate: Floats, up: Floats, limit: float) -> Words:
    """silu(min(gate, limit)) * clamp(up, -limit, limit) as bfloat16 words."""
    f, most = np.float32, np.float32(limit)
    with np.errstate(all="ignore"):
        g = np.where(gate > most, most, gate)
        g = np.where(g < f(-87), f(-87), g)
        u = np.where(up > most, most, up)
        u = np.where(u < -most, -most, u)
        e = exponential(np.where(g > f(87), f(-87), -g))
        return to_bfloat16(g / (f(1) + e) * u)


def expert(record: Record, flat: Bytes, x: Words, limit: float, bits: int = 16) -> Floats:
    """What one expert makes of bfloat16 words [tokens, hidden]: fp32 [tokens, hidden]."""
    found = unpack_expert(record, flat)
    tokens = quantize(x, bits)
    h = swiglu(times(*found["w1"], tokens), times(*found["w3"], tokens), limit)
    return times(*found["w2"], quantize(h, bits))


def experts(
    record: Record,
    records: dict[int, Bytes],
    x: Words,
    ids: NDArray[np.int32],
    weights: Floats,
    limit: float,
    bits: int = 16,
) -> Floats:
    """Weighted sums over the experts of each token, in the order of its slots: fp32 [tokens, hidden].

    ids and weights are [tokens, slots]; an id below 0 adds nothing.
    """
    total = np.zeros((x.shape[0], record.hidden), np.float32)
    for token, (its_ids, its_weights) in enumerate(zip(ids, weights, strict=True)):
        for index, weight in zip(its_ids, its_weights, strict=True):
            if index >= 0:
                y = expert(record, records[int(index)], x[token : token + 1], limit, bits)
                total[token] = fma(np.float32(weight), y[0], total[token])
    return np.where(np.isnan(total), np.uint32(0x7FC00000).view(np.float32), total)


def exact_expert(record: Record, flat: Bytes, x: Words, limit: float) -> Doubles:
    """The same in fp64, without quantization and with h not rounded: what errors are measured against."""
    found = unpack_expert(record, flat)

    def matrix(name: str) -> Doubles:
        codes, scales = found[name]
        scale = np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127))
        return np.asarray(twice_values(codes) * 0.5 * np.repeat(scale, BLOCK, axis=1))

    tokens = from_bfloat16(x).astype(np.float64)
    gate = np.minimum(tokens @ matrix("w1").T, limit)
    up = np.clip(tokens @ matrix("w3").T, -limit, limit)
    return np.asarray((gate / (1 + np.exp(-gate)) * up) @ matrix("w2").T)
