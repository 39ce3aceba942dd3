import numpy as np
import pytest

from kernels.p2p_allreduce import reference


def test_sums_by_hand() -> None:
    # 1 + 2^-24 is 1 in fp32, so the order decides.
    parts = np.array([[1.0, 2.0**-24], [2.0**-24, 2.0**-24], [2.0**-24, 1.0]], dtype=np.float32)
    assert reference.allreduce(parts, "float32").tolist() == [1.0, 1.0 + 2.0**-23]
    # 257 is halfway between two bf16, 2049 between two fp16: to even.
    halves = np.array([[256.0, 258.0], [1.0, 1.0]], dtype=np.float32)
    assert reference.allreduce(halves, "bfloat16").tolist() == [256.0, 260.0]
    assert reference.allreduce(np.array([[2048.0], [1.0]], dtype=np.float32), "float16").tolist() == [2048.0]
    assert reference.allreduce(np.array([[65504.0], [65504.0]], dtype=np.float32), "float16").tolist() == [np.inf]


def test_the_bound_admits_rounding_and_little_more() -> None:
    generator = np.random.default_rng(1)
    for dtype, step in (("bfloat16", 2.0**-6), ("float16", 2.0**-9), ("float32", 2.0**-17)):
        parts = reference.rounded(generator.standard_normal((8, 4096)).astype(np.float32), dtype)
        exact, limit = parts.astype(np.float64).sum(axis=0), reference.bound(parts.astype(np.float64), dtype)
        found = reference.allreduce(parts, dtype).astype(np.float64)
        assert (np.abs(found - exact) <= limit).all()
        far = np.abs(exact) > 1
        assert far.any() and (np.abs(exact * (1 + step) - exact) > limit)[far].all()


def test_what_is_delivered_lies_apart() -> None:
    """No two words or data of a workspace overlap, and all are in it."""
    for world in (2, 8):
        whole = np.zeros(reference.workspace_bytes(world), dtype=np.uint8)
        begins = [reference.data_at(parity, sender, world) for parity in (0, 1) for sender in range(world)]
        places = [(begin, reference.MOST_BYTES) for begin in begins]
        begins = [reference.words_at(parity, sender, world) for parity in (0, 1) for sender in range(world)]
        places += [(begin, 2 * reference.LL_BYTES) for begin in begins]
        places += [(0, 8), (reference.TOLD, 8), (reference.ROUNDS, 8 * reference.MOST_BLOCKS)]
        places += [
            (reference.arrival_at(parity, block, sender), 8)
            for parity in (0, 1)
            for block in range(reference.MOST_BLOCKS)
            for sender in range(reference.MOST_RANKS)
        ]
        for at, size in places:
            assert at % 8 == 0 and at + size <= len(whole)
            whole[at : at + size] += 1
        assert whole.max() == 1


def test_arrivals_differ() -> None:
    words = {
        reference.arrival(number, units, dtype, ll)
        for number in (1, 2, 2**40)
        for units in (1, 2, reference.MOST_BYTES // reference.UNIT_BYTES)
        for dtype in reference.TYPES
        for ll in (False, True)
    }
    assert len(words) == 54 and all(0 < word < 2**64 for word in words)
    assert reference.arrival(2**45 - 1, 1, "float32", ll=True) >> 19 == 2**45 - 1


def test_delivery_is_what_a_peer_reads() -> None:
    data = np.arange(1024, dtype=np.float32).tobytes()
    workspace = np.zeros(reference.workspace_bytes(2), dtype=np.uint8)
    reference.delivered(workspace, 1, 2, 7, data, "float32")
    begin = reference.data_at(1, 1, 2)
    assert workspace[begin : begin + 4096].tobytes() == data
    assert workspace[reference.arrival_at(1, 0, 1) :][:8].view(np.uint64)[0] == reference.arrival(7, 256, "float32")
    assert np.count_nonzero(workspace[: reference.DATA]) <= 8
    assert not workspace[reference.words_at(0, 0, 2) :].any()


def test_words_are_what_a_peer_reads_by_the_low_latency_protocol() -> None:
    number, units = 2**33 + 7, 40
    data = np.arange(4 * units, dtype=np.uint32)
    workspace = np.zeros(reference.workspace_bytes(2), dtype=np.uint8)
    reference.delivered(workspace, 1, 2, number, data.tobytes(), "float32", ll=True)
    begin = reference.words_at(1, 1, 2)
    slot = workspace[begin : begin + 2 * reference.LL_BYTES].view(np.uint32)
    # By hand, of units 0, 31 and 32: halves of a unit are 32 pairs of words apart.
    for unit, pair in ((0, 0), (31, 31), (32, 64)):
        first, second = slot[4 * pair :][:4].tolist(), slot[4 * (pair + 32) :][:4].tolist()
        assert first == [4 * unit, 7, 4 * unit + 1, 7] and second == [4 * unit + 2, 7, 4 * unit + 3, 7]
    assert np.count_nonzero(slot == 7) == 4 * units + 1
    expected = reference.arrival(number, units, "float32", ll=True)
    assert workspace[reference.arrival_at(1, 0, 1) :][:8].view(np.uint64)[0] == expected
    assert not workspace[reference.DATA : reference.words_at(0, 0, 2)].any()


@pytest.mark.parametrize("ll", [False, True])
def test_in_two_rounds_of_a_billion_no_word_is_left_of_earlier_ones(ll: bool) -> None:
    workspace = np.zeros(reference.workspace_bytes(2), dtype=np.uint8)
    data = np.full(64, 9, dtype=np.uint32)
    for number in (2**30 - 1, 2**30, 2**30 + 1, 2**30 + 2):
        before = workspace.copy()
        reference.delivered(workspace, 1, 2, number, data.tobytes(), "float32", ll)
        slots = []
        for parity in (0, 1):
            begin = reference.words_at(parity, 1, 2)
            slots.append(workspace[begin : begin + 2 * reference.LL_BYTES].view(np.uint64) >> np.uint64(32))
            if parity != number % 2:
                assert np.array_equal(
                    workspace[begin:][: 2 * reference.LL_BYTES], before[begin:][: 2 * reference.LL_BYTES]
                )
        aged = reference.LL_BYTES // 4 - 64 * ll
        assert np.count_nonzero(slots[number % 2] == number - 1) == (aged if reference.ages(number) else 0)
        assert np.count_nonzero(slots[number % 2] == number) == 64 * ll
    assert [number for number in range(2**30 - 5, 2**30 + 5) if reference.ages(number)] == [2**30, 2**30 + 1]
