import numpy as np
import pytest
import torch

from kernels.common import scale_layouts
from kernels.dispatch import linear_wo_a
from kernels.mxfp8_gemv.op import MOST_ROWS


def refusal(groups: int | None, rows: int, k: int, sm120: bool = True, batch_invariant: bool = False) -> str | None:
    return linear_wo_a.refusal(groups, rows, k, sm120=sm120, batch_invariant=batch_invariant)


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_wo_a_is_taken_on_any_number_of_cards(groups: int) -> None:
    assert refusal(groups, groups * 1024, 4096) is None


def test_what_does_not_fit_is_named() -> None:
    assert refusal(2, 2048, 4096, sm120=False) == "the device is not of compute capability 12.0"
    assert str(refusal(2, 2048, 4096, batch_invariant=True)).startswith("batch invariance is asked for")
    for groups, rows in ((None, 2048), (0, 2048), (2, 2048 + 64), (3, 2048)):
        told = f"layer [{rows}, 4096] of {groups} groups has groups whose rows are no multiple of 128"
        assert refusal(groups, rows, 4096) == told
    for k in (576, 4224):
        assert str(refusal(2, 2048, k)).startswith(f"layer [2048, {k}] of 2 groups has another K than ")


def words_of(scales: np.ndarray, stride: int) -> torch.Tensor:
    """Scales [M, G, K / 32] as words [M, G, K / 128], rows beside each other, those of the next columns `stride` on."""
    m, groups, columns = scales.shape
    memory = torch.full((groups, columns // 4, stride), -1, dtype=torch.int32)
    memory[..., :m] = torch.from_numpy(np.ascontiguousarray(scales).view(np.int32)).permute(1, 2, 0)
    return memory.permute(2, 0, 1)[:m]


@pytest.mark.parametrize("m", [1, 65, 127, 128, 129, 300])
@pytest.mark.parametrize(("groups", "columns"), [(1, 128), (2, 32), (3, 4)])
def test_words_become_tiles(m: int, groups: int, columns: int) -> None:
    scales = np.random.default_rng(m).integers(0, 255, (m, groups, columns), dtype=np.uint8)
    expected = np.stack([scale_layouts.swizzle(scales[:, g]) for g in range(groups)])
    for words in (words_of(scales, -(-m // 4) * 4), words_of(scales, m).contiguous()):
        result = linear_wo_a.swizzled(words)
        assert result.dtype == torch.uint8
        assert np.array_equal(result.numpy(), expected)


def test_rows_beyond_the_kernel_go_to_the_gemm_group_by_group() -> None:
    m, groups, n, k = MOST_ROWS + 1, 3, 128, 256
    x = torch.arange(groups * m * k, dtype=torch.int32).view(groups, m, k).to(torch.float8_e4m3fn).transpose(0, 1)
    scales = np.random.default_rng(1).integers(0, 255, (m, groups, k // 32), dtype=np.uint8)
    weight = torch.zeros(groups, n, k, dtype=torch.float8_e4m3fn)
    weight_scale = torch.zeros(groups, n * k // 32, dtype=torch.uint8)
    calls: list[tuple[torch.Tensor, ...]] = []

    def gemm(*tensors: torch.Tensor) -> torch.Tensor:
        calls.append(tensors)
        return torch.full((m, n), len(calls), dtype=torch.bfloat16)

    result = linear_wo_a.project(x, words_of(scales, 68), weight, weight_scale, gemm)
    assert result.shape == (m, groups, n)
    assert result.is_contiguous()
    for g, (x_g, x_scale_g, weight_g, weight_scale_g) in enumerate(calls):
        assert torch.equal(result[:, g], torch.full((m, n), g + 1, dtype=torch.bfloat16))
        assert x_g.is_contiguous()
        assert torch.equal(x_g.view(torch.uint8), x[:, g].contiguous().view(torch.uint8))
        assert np.array_equal(x_scale_g.numpy(), scale_layouts.swizzle(scales[:, g]))
        assert (weight_g.data_ptr(), weight_scale_g.data_ptr()) == (weight[g].data_ptr(), weight_scale[g].data_ptr())
