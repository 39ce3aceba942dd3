"""Stand-ins for operators of moet_kernels: without a GPU, they take what the operators take, and compute the oracle.

Each first hands its arguments to the real operator, whose checks must find nothing amiss but that no GPU holds them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

BLOCK = 32


@contextmanager
def on_no_gpu(operator: str, argument: str = "x") -> Iterator[None]:
    """Fails unless the body calls an operator that has nothing to say but that an argument is on no GPU."""
    with pytest.raises(RuntimeError) as caught:
        yield
    assert str(caught.value).startswith(f"{operator}: {argument}: is not on a CUDA device"), caught.value


def mxfp8(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bfloat16 [rows, K] as upstream quantizes it: E4M3 codes, and UE8M0 scales [rows, K / 32]."""
    from vllm.model_executor.layers.quantization.utils.mxfp8_utils import _mxfp8_e4m3_quantize_torch

    return _mxfp8_e4m3_quantize_torch(values, False)


def numbers(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What codes [..., K] with plain scales [..., K / 32] stand for, in float64."""
    factors = torch.exp2(scales.double() - 127).repeat_interleave(BLOCK, dim=-1)
    return codes.double() * factors


def close(result: torch.Tensor, expected: torch.Tensor) -> None:
    """Fails unless `result`, bfloat16, is `expected`, float64, but for rounding."""
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.double(), expected, rtol=2**-8, atol=1e-6 * float(expected.abs().max()))


def _values(codes: torch.Tensor, swizzled_scales: torch.Tensor) -> Any:
    """The oracle's numbers for codes [rows, K] whose scales are F8_128x4."""
    from moet_kernels.common import scale_layouts
    from moet_kernels.mxfp8_gemv import reference

    plain = scale_layouts.unswizzle(swizzled_scales.numpy().reshape(-1), len(codes), codes.shape[1] // BLOCK)
    return reference.values(codes.view(torch.uint8).numpy(), plain)


def mxfp8_gemv(seen: list[dict[str, Any]], compute: bool) -> Callable[..., torch.Tensor]:
    """A stand-in for mxfp8_gemv, which puts its arguments into `seen`; it computes, or returns zeros."""
    from moet_kernels.mxfp8_gemv import op, reference

    def stand_in(*tensors: torch.Tensor, swizzled: bool, dependent: bool) -> torch.Tensor:
        with on_no_gpu("mxfp8_gemv"):
            op.mxfp8_gemv(*tensors, swizzled=swizzled, dependent=dependent)
        assert swizzled
        seen.append({"tensors": tensors, "dependent": dependent})
        x, x_scale, weight, weight_scale = (tensor.detach() for tensor in tensors)
        if not compute:
            return torch.zeros(len(x), len(weight), dtype=torch.bfloat16)
        product = reference.mxfp8_gemv(_values(x, x_scale), _values(weight, weight_scale))
        return torch.from_numpy(np.asarray(product)).to(torch.bfloat16)

    return stand_in


def mxfp8_grouped_gemv(seen: list[dict[str, Any]]) -> Callable[..., torch.Tensor]:
    """A stand-in for mxfp8_grouped_gemv with packed scales, which puts its arguments into `seen`, and computes."""
    from moet_kernels.mxfp8_gemv import op, reference

    def stand_in(*tensors: torch.Tensor, swizzled: bool, packed: bool, dependent: bool) -> torch.Tensor:
        with on_no_gpu("mxfp8_grouped_gemv"):
            op.mxfp8_grouped_gemv(*tensors, swizzled=swizzled, packed=packed, dependent=dependent)
        assert swizzled
        assert packed
        seen.append({"tensors": tensors, "dependent": dependent})
        x, words, weight, weight_scale = (tensor.detach() for tensor in tensors)
        groups, n, k = weight.shape
        scales = words.contiguous().view(torch.uint8)
        values = reference.values(x.contiguous().view(torch.uint8).numpy(), scales.numpy())
        weights = _values(weight.view(groups * n, k), weight_scale).reshape(groups, n, k)
        return torch.from_numpy(reference.mxfp8_grouped_gemv(values, weights)).to(torch.bfloat16)

    return stand_in


def flashinfer_gemm(seen: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> Callable[..., torch.Tensor]:
    """A stand-in for vLLM's mm_mxfp8, which puts its arguments into `seen`, and computes."""

    def stand_in(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        seen.append((tensors, options))
        x, weight, x_scale, weight_scale = (tensor.detach() for tensor in tensors)
        assert x.is_contiguous()
        product = _values(x, x_scale) @ _values(weight.t().contiguous(), weight_scale).T
        return torch.from_numpy(product).to(options["out_dtype"])

    return stand_in


def skinny_gemm(seen: list[dict[str, Any]]) -> Callable[..., torch.Tensor]:
    """A stand-in for skinny_gemm, which puts its arguments into `seen`, and computes."""
    from moet_kernels.skinny_gemm import op, reference

    def stand_in(x: torch.Tensor, weight: torch.Tensor, *, out_dtype: torch.dtype, dependent: bool) -> torch.Tensor:
        with on_no_gpu("skinny_gemm"):
            op.skinny_gemm(x, weight, out_dtype=out_dtype, dependent=dependent)
        seen.append({"tensors": (x, weight), "out_dtype": out_dtype, "dependent": dependent})
        product = reference.skinny_gemm(x.double().numpy(), weight.detach().double().numpy())
        return torch.from_numpy(product).to(out_dtype)

    return stand_in


def kv_record(seen: list[dict[str, Any]]) -> Callable[..., None]:
    """A stand-in for kv_record, which puts its arguments into `seen`, and writes."""
    from moet_kernels.kv_record import op, reference

    real = op.kv_record

    def stand_in(
        rows: torch.Tensor,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
        *,
        queries: torch.Tensor | None = None,
        compress_ratio: int = 1,
        dependent: bool = False,
    ) -> None:
        tensors = (rows, positions, cos_sin, slots, cache)
        with on_no_gpu("kv_record", "rows"):
            real(*tensors, queries=queries, compress_ratio=compress_ratio, dependent=dependent)
        seen.append({"tensors": tensors, "queries": queries, "ratio": compress_ratio, "dependent": dependent})
        pages, page, width = cache.shape
        at, places, angles = positions.numpy(), slots.numpy(), cos_sin.numpy()
        live = reference.written(at[: len(places)], places, pages * page, len(angles), compress_ratio).nonzero()[0]
        turned = reference.rotate(
            rows[live].float().numpy(), angles[reference.first_of_group(at[live], compress_ratio)]
        )
        memory = torch.as_strided(cache, (pages, page * width), (cache.stride(0), 1)).numpy()
        reference.store(memory, page, places[live], reference.RECORDS[width].encode(turned))
        for one in () if queries is None else queries.unbind(1):
            one.copy_(torch.from_numpy(reference.rotate(one.float().numpy(), angles[at[: len(one)]])))

    return stand_in
