import numpy as np
from numpy.typing import NDArray

def quantize(
    scheme: str,
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8] | NDArray[np.float32],
    scale_2: float,
    rows: int,
    columns: int,
    zero_mode: str,
    code_plane: NDArray[np.uint8],
    scale_plane: NDArray[np.uint8],
    delta: str,
    delta_plane: NDArray[np.uint8],
    isa: str = "",
) -> list[int]: ...
def isas() -> list[str]: ...
