import numpy as np

from kernels.common import formats
from kernels.skinny_gemm import reference


def test_integers_by_hand() -> None:
    generator = np.random.default_rng(1)
    x, weight = (generator.integers(-8, 9, (rows, 40)) for rows in (3, 5))
    by_hand = [[sum(int(a) * int(b) for a, b in zip(row, column, strict=True)) for column in weight] for row in x]
    assert reference.skinny_gemm(x.astype(float), weight.astype(float)).tolist() == by_hand


def test_the_bound_admits_rounding_and_little_more() -> None:
    generator = np.random.default_rng(2)
    x, weight = (formats.round_bf16(generator.standard_normal((n, 512)).astype(np.float32)) for n in (16, 64))
    exact = reference.skinny_gemm(x.astype(float), weight.astype(float))
    rounded = formats.round_bf16((x @ weight.T).astype(np.float32)).astype(float)
    limit = reference.bound(x.astype(float), weight.astype(float), bf16=True)
    assert (np.abs(rounded - exact) <= limit).all()
    next_but_one = rounded + 2 * formats.bf16_spacing(rounded)
    far_from_zero = np.abs(exact) > 1
    assert far_from_zero.any() and (np.abs(next_but_one - exact) > limit)[far_from_zero].all()
