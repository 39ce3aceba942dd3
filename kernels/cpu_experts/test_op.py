"""The tier against its contract, bit for bit: every instruction set, count of tokens and of threads, and odd values."""

import math

import numpy as np
import pytest

from kernels.cpu_experts import made_up, reference
from kernels.cpu_experts.layout import SCALE_BYTES, SUPERBLOCK, Record, pack_expert, unpack_expert
from kernels.cpu_experts.made_tier import made, same
from kernels.cpu_experts.op import MAX_TOKENS, isas

ALL = ("scalar", "avx2", "avx512", "amx")
BITS = {"int16": 16, "int8": 8}


@pytest.fixture(params=ALL)
def isa(request: pytest.FixtureRequest) -> str:
    if request.param not in isas():
        pytest.skip(f"this CPU or system has no {request.param}")
    return str(request.param)


# One superblock across and several; fewer units than threads; the last superblock of w2 filled up by 1, 2 and 3 blocks.
SHAPES = [
    Record(128, 128),
    Record(128, 512),
    Record(640, 128),
    Record(384, 256),
    Record(128, 224),
    Record(256, 576),
    Record(128, 32),
]


@pytest.mark.parametrize("activations", BITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_count_of_tokens(isa: str, activations: str, shape: Record) -> None:
    records = {0: made_up.record(shape, 1)}
    x = made_up.activations((MAX_TOKENS, shape.hidden), 2)
    want = reference.expert(shape, records[0], x, 10.0, BITS[activations])
    for threads in (1, 2, 3, 4):
        tier = made(shape, records, isa=isa, activations=activations, threads=threads)
        for tokens in range(1, MAX_TOKENS + 1):
            assert tier.isa(tokens) == isa
            got = tier(x[:tokens], np.zeros((tokens, 1), np.int32), np.ones((tokens, 1), np.float32))
            assert same(got, want[:tokens])


@pytest.mark.parametrize("activations", BITS)
@pytest.mark.parametrize("intermediate", [384, 288])
def test_routing(isa: str, activations: str, intermediate: int) -> None:
    shape = Record(256, intermediate)
    records = {expert: made_up.record(shape, expert) for expert in range(5)}
    tier = made(shape, records, isa=isa, activations=activations, threads=3)
    for tokens in range(1, MAX_TOKENS + 1):
        x = made_up.activations((tokens, shape.hidden), tokens)
        ids, weights = made_up.routed(tokens, 4, 5, tokens)
        want = reference.experts(shape, records, x, ids, weights, 10.0, BITS[activations])
        assert same(tier(x, ids, weights), want)


def test_a_token_does_not_see_the_others(isa: str) -> None:
    shape = Record(256, 256)
    records = {expert: made_up.record(shape, expert) for expert in range(6)}
    tier = made(shape, records, isa=isa)
    x = made_up.activations((MAX_TOKENS, shape.hidden), 3)
    ids, weights = made_up.routed(MAX_TOKENS, 3, 6, 4)
    together = tier(x, ids, weights)
    for token in range(MAX_TOKENS):
        one = slice(token, token + 1)
        assert same(tier(x[one], ids[one], weights[one]), together[one])


@pytest.mark.parametrize("limit", [10.0, 0.5, math.inf])
def test_limits(isa: str, limit: float) -> None:
    shape = Record(128, 128)
    records = {0: made_up.record(shape, 5, scales=(120, 126))}
    x = made_up.activations((3, shape.hidden), 6)
    want = reference.expert(shape, records[0], x, limit)
    assert same(
        made(shape, records, isa=isa, limit=limit)(x, np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32)), want
    )


def odd_activations(kind: str, shape: tuple[int, int]) -> np.ndarray:
    random = np.random.default_rng(7)
    sign_and_mantissa = random.integers(0, 2**16, shape, dtype=np.uint16) & np.uint16(0x807F)
    exponent = {
        "denormal": random.integers(0, 2, shape) * (random.random(shape) < 0.1),
        "tiny": random.integers(0, 20, shape),
        "wide": random.integers(40, 210, shape),
        "huge": random.integers(248, 255, shape),
        "all finite": random.integers(0, 255, shape),
        "zero": np.zeros(shape, np.int64),
        "some not finite": np.where(random.random(shape) < 0.004, 255, 127),
    }[kind]
    if kind == "zero":
        sign_and_mantissa &= np.uint16(0x8000)
    return (sign_and_mantissa | (exponent.astype(np.uint16) << np.uint16(7))).astype(np.uint16)


KINDS = ["denormal", "tiny", "wide", "huge", "all finite", "zero", "some not finite"]


@pytest.mark.parametrize("activations", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_activations(isa: str, kind: str, activations: str) -> None:
    shape = Record(256, 128)
    x = odd_activations(kind, (5, shape.hidden))
    for scales in ((118, 122), (0, 254), (60, 66)):
        records = {0: made_up.record(shape, 8, scales)}
        want = reference.experts(
            shape, records, x, np.zeros((5, 1), np.int32), np.ones((5, 1), np.float32), 10.0, BITS[activations]
        )
        tier = made(shape, records, isa=isa, activations=activations)
        assert same(tier(x, np.zeros((5, 1), np.int32), np.ones((5, 1), np.float32)), want)


def test_what_is_not_finite_comes_out_as_nan_in_its_row_alone(isa: str) -> None:
    shape = Record(256, 128)
    tier = made(shape, {0: made_up.record(shape, 9)}, isa=isa)
    clean = made_up.activations((4, shape.hidden), 10)
    ids, weights = np.zeros((4, 1), np.int32), np.ones((4, 1), np.float32)
    want = tier(clean, ids, weights)
    for word in (0x7F80, 0xFF80, 0x7FC0, 0xFFFF):
        x = clean.copy()
        x[2, 255] = word
        got = tier(x, ids, weights)
        assert (got[2].view(np.uint32) == 0x7FC00000).all()
        for row in (0, 1, 3):
            assert same(got[row], want[row])


@pytest.mark.parametrize("matrix", ["w1", "w3", "w2"])
@pytest.mark.parametrize("byte", [0, 255])
def test_scales_at_the_ends(isa: str, matrix: str, byte: int) -> None:
    shape = Record(128, 128)
    flat = made_up.record(shape, 11)
    begin = shape.offset(matrix)
    # Of rows 16 to 31 of the matrix, blocks 1 and 2, some rows.
    flat[begin + SUPERBLOCK + 19 : begin + SUPERBLOCK + 43] = byte
    assert SCALE_BYTES >= 43
    x = made_up.activations((3, shape.hidden), 12)
    ids, weights = np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32)
    want = reference.experts(shape, {0: flat}, x, ids, weights, 10.0)
    got = made(shape, {0: flat}, isa=isa)(x, ids, weights)
    assert same(got, want)
    assert np.isnan(got).any() == (byte == 255)


def test_weights_that_are_no_numbers(isa: str) -> None:
    shape = Record(128, 128)
    records = {expert: made_up.record(shape, expert) for expert in range(2)}
    x = made_up.activations((4, shape.hidden), 13)
    ids = np.array([[0, 1]] * 4, np.int32)
    weights = np.array([[math.nan, 1], [math.inf, 1], [1e38, -1e38], [1e-45, 0]], np.float32)
    want = reference.experts(shape, records, x, ids, weights, 10.0)
    assert same(made(shape, records, isa=isa)(x, ids, weights), want)


def test_bfloat16_out(isa: str) -> None:
    shape = Record(256, 128)
    tier = made(shape, {0: made_up.record(shape, 14)}, isa=isa)
    x = made_up.activations((3, shape.hidden), 15)
    x[1, 0] = 0x7FC0
    ids, weights = np.zeros((3, 1), np.int32), np.full((3, 1), 0.7, np.float32)
    out32, out16 = np.empty((3, shape.hidden), np.float32), np.empty((3, shape.hidden), np.uint16)
    tier.job(x, ids, weights, out32=out32, out16=out16).run()
    alone = np.empty_like(out16)
    tier.job(x, ids, weights, out16=alone).run()
    assert np.array_equal(out16, reference.to_bfloat16(out32))
    assert np.array_equal(out16, alone)
    assert (out16[1] == 0x7FC0).all()


def test_nothing_is_written_beside_the_outputs(isa: str) -> None:
    shape = Record(128, 128)
    tier = made(shape, {0: made_up.record(shape, 16)}, isa=isa)
    room = np.full((9, 128), 7.0, np.float32)
    for tokens in range(1, 8):
        room[:] = 7
        x = made_up.activations((tokens, 128), tokens)
        tier.job(x, np.zeros((tokens, 1), np.int32), np.ones((tokens, 1), np.float32), out32=room[1 : 1 + tokens]).run()
        assert (room[0] == 7).all()
        assert (room[1 + tokens :] == 7).all()


def test_filling_up_changes_no_bit(isa: str) -> None:
    """A shard whose inputs end within a superblock, and the same with rows of zeros in all matrices: one result."""
    shard, whole = Record(128, 160), Record(128, 256)
    found = unpack_expert(shard, made_up.record(shard, 17))
    wider = {}
    for name, (codes, scales) in found.items():
        rows, inputs = whole.shape(name)
        wider[name] = np.zeros((rows, inputs // 2), np.uint8), np.zeros((rows, inputs // 32), np.uint8)
        for to, given in zip(wider[name], (codes, scales), strict=True):
            to[: given.shape[0], : given.shape[1]] = given
    flat = pack_expert(whole, wider, out=made_up.aligned(whole.size))
    x = made_up.activations((MAX_TOKENS, 128), 18)
    x[3, 0] = 0x7F80
    ids, weights = np.zeros((MAX_TOKENS, 1), np.int32), np.ones((MAX_TOKENS, 1), np.float32)
    want = made(whole, {0: flat}, isa=isa)(x, ids, weights)
    tier = made(shard, {0: made_up.record(shard, 17)}, isa=isa)
    for tokens in range(1, MAX_TOKENS + 1):
        # A job before it whose h are no numbers, of more tokens: they lie where zeros belong.
        assert np.isnan(tier(np.full((MAX_TOKENS, 128), 0x7FC0, np.uint16), ids, weights)).all()
        assert same(tier(x[:tokens], ids[:tokens], weights[:tokens]), want[:tokens])
