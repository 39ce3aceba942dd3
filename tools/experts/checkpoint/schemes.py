"""How a matrix of an expert is quantized, read off its tensors, and its arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.common import formats
from tools.cli.errors import UserError
from tools.experts.checkpoint.headers import Tensor

SCHEMES = ("mxfp4", "fp8_block", "nvfp4")

FP8_BLOCK, NVFP4_BLOCK = 128, 16


@dataclass(frozen=True)
class Matrix:
    """A matrix [rows, columns] of an expert as the checkpoint has it.

    Attributes:
        scheme: of SCHEMES.
        rows: outputs.
        columns: inputs.
        codes: uint8; E2M1 [rows, columns / 2], the low nibble first; of fp8_block E4M3 [rows, columns].
        scales: mxfp4: uint8, UE8M0 [rows, columns / 32]; nvfp4: uint8, E4M3 [rows, columns / 16]; fp8_block: float32
            [rows / 128, columns / 128], both rounded up.
        scale_2: a float32; of all schemes but nvfp4 it is 1.
        name: of its weight's tensor.
    """

    scheme: str
    rows: int
    columns: int
    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8] | NDArray[np.float32]
    scale_2: float
    name: str = ""


@dataclass(frozen=True)
class Form:
    """Scheme and shape of a matrix."""

    scheme: str
    rows: int
    columns: int


def form(name: str, parts: dict[str, Tensor]) -> Form | None:
    """The form of the matrix whose weight is called `name`; None where it is not quantized.

    Raises UserError for what none of the schemes is.
    """
    weight, scale, second = parts["weight"], parts.get("scale"), parts.get("scale_2")
    if weight.dtype in ("BF16", "F16", "F32") and scale is None:
        return None
    found = None
    if len(weight.shape) == 2 and scale is not None:
        rows, columns = weight.shape
        if weight.dtype in ("U8", "I8"):
            columns *= 2
            if scale.dtype in ("F8_E8M0", "U8") and second is None:
                found, expected = "mxfp4", (rows, columns // formats.BLOCK)
            elif scale.dtype == "F8_E4M3" and second is not None and second.dtype == "F32" and second.size == 4:
                found, expected = "nvfp4", (rows, columns // NVFP4_BLOCK)
        elif weight.dtype == "F8_E4M3" and scale.dtype in ("F32", "F8_E8M0") and second is None:
            found, expected = "fp8_block", (-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK))
    if found is None:
        stated = ", ".join(f"{part} {one.dtype} {list(one.shape)}" for part, one in parts.items())
        raise UserError(
            f"{name}: {stated}: none of {', '.join(SCHEMES)} (docs/format-2bit.md, how 4-bit weights come about)"
        )
    assert scale is not None
    if rows <= 0 or rows % 16 or columns <= 0 or columns % 64:
        raise UserError(f"{name}: a matrix of {rows} x {columns}; rows must be a multiple of 16 and columns of 64")
    if scale.shape != expected:
        raise UserError(f"{name}: its scales are {list(scale.shape)}; expected {list(expected)} of {found}")
    return Form(found, rows, columns)


def matrix(
    name: str, parts: dict[str, Tensor], found: Form, read: Callable[[str, Tensor], NDArray[np.uint8]]
) -> Matrix:
    """The matrix of `form`; `read` gives the bytes of a part's tensor, flat."""
    weight, scale = parts["weight"], parts["scale"]
    codes, raw = read("weight", weight).reshape(weight.shape), read("scale", scale)
    scales: NDArray[np.uint8] | NDArray[np.float32]
    if found.scheme != "fp8_block":
        scales = raw.reshape(scale.shape)
    elif scale.dtype == "F32":
        scales = raw.view("<f4").reshape(scale.shape)
    else:
        scales = formats.decode_ue8m0(raw).astype(np.float32).reshape(scale.shape)
    second = float(read("scale_2", parts["scale_2"]).view("<f4")[0]) if "scale_2" in parts else 1.0
    return Matrix(found.scheme, found.rows, found.columns, codes, scales, second, name)
