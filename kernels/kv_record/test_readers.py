"""The reader of keys finds what is written: paged_mqa_logits' oracle on pages that this one's has filled."""

import numpy as np
import pytest

from kernels.common import formats
from kernels.kv_record import reference
from kernels.paged_mqa_logits import reference as logits_reference


@pytest.mark.parametrize("page", reference.PAGE_SIZES)
def test_keys(page: int) -> None:
    generator = np.random.default_rng(page)
    rows = formats.round_bf16(generator.standard_normal((2 * page - 5, 128)).astype(np.float32))
    rows[3, 40] = np.nan
    encoded = reference.KEY.encode(rows)
    slots = np.arange(len(rows)) + page
    memory = np.full((3, page * reference.KEY.width), 0xFF, dtype=np.uint8)
    reference.store(memory, page, slots, encoded)
    assert np.array_equal(memory[1:], logits_reference.write_pages(*encoded, page, filler=0xFF))
    read = [np.concatenate(part) for part in zip(*(logits_reference.read_page(m, page) for m in memory), strict=True)]
    keys = logits_reference.decode_keys(*read)
    assert np.array_equal(keys.values[slots], reference.KEY.decode(encoded), equal_nan=True)
    logits = logits_reference.logits(np.ones((1, 32, 128)), np.ones((1, 32)), keys)
    assert logits[0, slots[3]] == 0 and np.isfinite(logits[0, slots]).all() and logits[0, slots].any()
