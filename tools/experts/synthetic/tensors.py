"""Made-up weights of an expert's matrix in the form that a scheme has them.

Weights are of Student's distribution with few degrees of freedom, with a scale for each row: most are small, few are
large, as in the models. On them the best four levels of any kind lean to one side, and the best symmetric ones do not.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.common import formats

Doubles = NDArray[np.float64]
Arrays = dict[str, tuple[str, NDArray[np.generic]]]


def weights(generator: np.random.Generator, rows: int, columns: int, degrees: int = 3) -> Doubles:
    """Weights [rows, columns]."""
    scales = 0.01 * np.exp2(generator.normal(0, 0.5, (rows, 1)))
    return np.asarray(scales * generator.standard_t(degrees, (rows, columns)))


def stored(scheme: str, values: Doubles, positive_zeros: bool = False) -> Arrays:
    """Part to safetensors' dtype and array of weights [rows, columns]."""
    if scheme == "mxfp4":
        return _mxfp4(values)
    if scheme == "nvfp4":
        return _nvfp4(_coarse(values) if positive_zeros else values, positive_zeros)
    return _fp8(values)


def _mxfp4(values: Doubles) -> Arrays:
    blocks = values.reshape(len(values), -1, formats.BLOCK)
    exponents = np.clip(np.floor(np.log2(np.abs(blocks).max(axis=-1))) - 2, -127, 127)
    codes = formats.encode_e2m1((blocks / np.exp2(exponents)[..., None]).reshape(values.shape))
    return {"weight": ("I8", codes), "scale": ("F8_E8M0", (exponents + 127).astype(np.uint8))}


def _nvfp4(values: Doubles, positive_zeros: bool) -> Arrays:
    second = np.float32(np.abs(values).max() / (formats.E2M1_MAX * formats.E4M3_MAX))
    blocks = values.reshape(len(values), -1, 16)
    scales = formats.encode_e4m3(np.abs(blocks).max(axis=-1) / formats.E2M1_MAX / float(second))
    of_block = np.maximum(formats.decode_e4m3(scales) * float(second), 1e-30)
    codes = formats.encode_e2m1((blocks / of_block[..., None]).reshape(values.shape))
    if positive_zeros:
        for nibble, negative_zero in ((0x0F, 0x08), (0xF0, 0x80)):
            codes[(codes & nibble) == negative_zero] &= ~np.uint8(nibble)
    return {
        "weight": ("U8", codes),
        "scale": ("F8_E4M3", scales),
        "scale_2": ("F32", np.array(second, dtype=np.float32)),
    }


def _coarse(values: Doubles) -> Doubles:
    """Values in steps of a seventh of their 32 columns' largest, as a checkpoint of 4-bit integers had them."""
    blocks = values.reshape(len(values), -1, 32)
    steps = np.abs(blocks).max(axis=-1, keepdims=True) / 7
    return np.asarray((np.rint(blocks / steps) * steps).reshape(values.shape))


def _fp8(values: Doubles) -> Arrays:
    rows, columns = values.shape
    padded = np.zeros((-(-rows // 128) * 128, -(-columns // 128) * 128))
    padded[:rows, :columns] = values
    blocks = padded.reshape(padded.shape[0] // 128, 128, -1, 128)
    scales = (np.abs(blocks).max(axis=(1, 3)) / formats.E4M3_MAX).astype(np.float32)
    codes = formats.encode_e4m3(blocks / scales.astype(np.float64)[:, None, :, None]).reshape(padded.shape)
    return {"weight": ("F8_E4M3", np.ascontiguousarray(codes[:rows, :columns])), "scale": ("F32", scales)}
