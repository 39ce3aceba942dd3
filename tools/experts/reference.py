"""An expert in plain numpy, as the models compute it: W2 (silu(gate) * up), with gate and up clamped where they are."""

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def swiglu(gate: Doubles, up: Doubles, limit: float | None) -> Doubles:
    """silu(gate) * up; before that gate is at most `limit`, and up between -limit and limit.

    DeepSeek V4's and V4.1's limit is 10 (`swiglu_limit` of their configuration); None clamps nothing. vLLM's
    SiluAndMulWithClamp (model_executor/layers/activation.py) is the same. NaN stays NaN.
    """
    if limit is not None:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    # exp() of what is large and negative overflows to what silu makes zero.
    with np.errstate(over="ignore"):
        return np.asarray(gate / (1 + np.exp(-gate)) * up)


def expert(x: Doubles, w1: Doubles, w3: Doubles, w2: Doubles, limit: float | None) -> Doubles:
    """The expert's output [tokens, H] for x [tokens, H], w1 and w3 [I, H], w2 [H, I]."""
    return np.asarray(swiglu(x @ w1.T, x @ w3.T, limit) @ w2.T)
