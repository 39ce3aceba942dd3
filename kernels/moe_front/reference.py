"""What moe_front computes, in plain numpy. Every output is exact: the kernel has these very bits.

Scores are in fp32, operation by operation as softplus.cuh has them, so that what is chosen can be compared too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bytes = NDArray[np.uint8]

TOP = 6
IMAGE_TOKENS = 5

# How far a score may be from sqrt(log(1 + exp(logit))), as a share of it, for logits from -86 on.
SCORE_ERROR = 3 * 2.0**-24

_LOG1P_RATIO = (
    -3.25637846e-3, 1.99071616e-2, -5.70642017e-2, 0.106142648, -0.153118625, 0.196781173, -0.249545589, 0.333300054,
    -0.499999046, 1.0,
)  # fmt: skip
_EXP = (1.39336521e-3, 8.36318173e-3, 4.16664667e-2, 0.166665763, 0.5, 1.0, 1.0)


def _fma(a: Floats, b: Floats | float, c: Floats | float) -> Floats:
    """Returns a * b + c, rounded once: an exact product, and a sum in float64 rounded to odd before it is to fp32."""
    factor, other, addend = (np.asarray(v, dtype=np.float32).astype(np.float64) for v in (a, b, c))
    product = factor * other
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    odd = bits + np.where((error > 0) == (total > 0), 1, -1)
    result: Floats = np.where((error != 0) & (bits & 1 == 0), odd, bits).view(np.float64).astype(np.float32)
    return result


def _polynomial(coefficients: tuple[float, ...], at: Floats) -> Floats:
    total = np.full_like(at, coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fma(total, at, coefficient)
    return total


def scores(logits: Floats) -> Floats:
    """Returns sqrt(log(1 + exp(logit))): 0 for logits below -86, infinity for infinity, NaN for NaN."""
    below = -np.abs(logits)
    inside = np.where(below >= np.float32(-86), below, np.float32(0)).astype(np.float32)
    shifted = _fma(inside, 1.44269502, 12582912.0)
    n = shifted - np.float32(12582912)
    rest = _fma(n, 2.12194442e-4, _fma(n, -0.693359375, inside))
    exponent = shifted.view(np.uint32) << np.uint32(23)
    power = (_polynomial(_EXP, rest).view(np.uint32) + exponent).view(np.float32)
    e = np.where(below >= np.float32(-86), power, np.float32(0)).astype(np.float32)
    positive = np.where(logits > 0, logits, np.float32(0)).astype(np.float32)
    finite = np.isfinite(positive)
    total = np.where(finite, _fma(e, _polynomial(_LOG1P_RATIO, e), np.where(finite, positive, np.float32(0))), positive)
    result: Floats = np.sqrt(np.where(np.isnan(logits), logits, total)).astype(np.float32)
    return result


def route(logits: Floats, bias: Floats, scaling_factor: float = 1.0) -> tuple[Ints, Floats]:
    """Returns the experts of each token, best first, and their weights: [M, 6] each.

    Args:
        logits: [M, E].
        bias: what is added to the scores for the choice alone; [E], or [M, E] where it differs by token.
        scaling_factor: of the weights, which are shares of their sum.
    """
    score = scores(logits)
    with np.errstate(invalid="ignore"):
        biased = score + bias
    biased = np.where(np.isnan(biased), np.float32(-1e30), biased)
    ids = np.argsort(-biased, axis=-1, kind="stable")[:, :TOP].astype(np.int32)
    chosen = np.take_along_axis(score, ids, axis=-1)
    total = chosen[:, 0]
    with np.errstate(invalid="ignore"):
        for slot in range(1, TOP):
            total = total + chosen[:, slot]
        factor = np.float32(scaling_factor) / np.where(total > 0, total, np.float32(1))
        weights = (chosen * factor[:, None]).astype(np.float32)
    return ids, weights


def image_tokens(token_ids: NDArray[np.int64], image_first: int) -> NDArray[np.bool_]:
    """Returns which tokens are part of an image: five ids from `image_first` on; 0 for none."""
    inside = (token_ids >= image_first) & (token_ids < image_first + IMAGE_TOKENS)
    return inside & (image_first > 0)


def quantize(x: Floats, group: int) -> tuple[Bytes, Bytes]:
    """Returns E4M3 codes [M, K] and UE8M0 scales [M, K / group] of x [M, K], whose values are of bfloat16.

    A scale is the least power of two, 2^-33 or more, by which a group's values become 448 or less; 255 (NaN) where one
    of them is not finite, and the codes of such a group are 0 or, for what is not finite, NaN.
    """
    grouped = x.reshape(x.shape[0], -1, group).astype(np.float64)
    largest = np.abs(grouped).max(axis=-1)
    finite = np.isfinite(largest)
    fraction, power = np.frexp(np.where(finite, np.maximum(largest, 2.0**-33), 1.0) / formats.E4M3_MAX)
    exponent = np.maximum(np.where(fraction == 0.5, power - 1, power), -33)
    inverse = np.where(finite, np.exp2(-exponent.astype(np.float64)), 0.0)
    with np.errstate(invalid="ignore"):
        codes = formats.encode_e4m3(grouped * inverse[..., None]).reshape(x.shape)
    scales: Bytes = np.where(finite, exponent + 127, 255).astype(np.uint8)
    return codes, scales


def rows(tokens: int, experts: int, alignment: int) -> int:
    """Returns how many rows the result has: enough for any choice, a multiple of `alignment`.

    >>> rows(6, 384, 64)
    2304
    """
    pairs = tokens * TOP
    return -(-(pairs + min(pairs, experts) * (alignment - 1)) // alignment) * alignment


class Places(NamedTuple):
    """`m_indices` [R]: the expert of each row, or -1; `inv_perm` [M, 6]: the row of each pair, or -1."""

    m_indices: Ints
    inv_perm: Ints


def place(ids: Ints, experts: int, alignment: int) -> Places:
    """Returns where pairs of token and expert go.

    Experts in turn, each from a multiple of `alignment` on, and its tokens in turn. An id of -1 goes nowhere.
    """
    m_indices = np.full(rows(ids.shape[0], experts, alignment), -1, dtype=np.int32)
    inv_perm = np.full(ids.shape, -1, dtype=np.int32)
    row = 0
    for expert in sorted({int(expert) for expert in ids.flat} - {-1}):
        tokens, slots = np.nonzero(ids == expert)
        inv_perm[tokens, slots] = row + np.arange(len(tokens))
        m_indices[row : row + len(tokens)] = expert
        row += -(-len(tokens) // alignment) * alignment
    return Places(m_indices, inv_perm)


def words(scales: Bytes) -> Ints:
    """Returns four scales of a row in one word, the first in the lowest byte: [M, K / (4 group)] of [M, K / group]."""
    return np.ascontiguousarray(scales).view("<i4")
