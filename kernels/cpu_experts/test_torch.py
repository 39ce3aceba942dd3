"""Tensors as arguments, of a torch without a GPU."""

import numpy as np
import pytest
import torch

from kernels.cpu_experts import made_up, reference
from kernels.cpu_experts.layout import Record
from kernels.cpu_experts.op import CpuExperts


def test_tensors() -> None:
    shape = Record(128, 128)
    record = made_up.record(shape, 1)
    tier = CpuExperts(128, 128, 1, 1, threads=2)
    room = torch.zeros(shape.size + 64, dtype=torch.uint8)
    begin = -room.data_ptr() % 64
    room[begin : begin + shape.size] = torch.from_numpy(record.copy())
    tier.set_record(0, room[begin : begin + shape.size])
    x = torch.randn(3, 128).bfloat16()
    ids, weights = torch.zeros(3, 1, dtype=torch.int32), torch.ones(3, 1)
    out = torch.empty(3, 128, dtype=torch.bfloat16)
    tier.job(x, ids, weights, out16=out).run()
    words = x.view(torch.int16).numpy().view(np.uint16)
    want = reference.to_bfloat16(reference.expert(shape, record, words, 10.0))
    assert np.array_equal(out.view(torch.int16).numpy().view(np.uint16), want)
    with pytest.raises(TypeError, match="x is float32; expected bfloat16"):
        tier.job(x.float(), ids, weights, out16=out)
