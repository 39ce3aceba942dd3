"""Finds and loads the library of a family."""

import os
from pathlib import Path

import torch

# A folder that has the libraries, where they are not beside their Python faces.
FOLDER = "MOET_KERNELS"

_loaded: set[str] = set()


def path(family: str) -> Path:
    """Returns the library of a family: in $MOET_KERNELS, else in the family's own folder.

    Raises FileNotFoundError, naming both, when it is in neither.
    """
    own = Path(__file__).parent.parent / family
    places = [Path(folder) for folder in [os.environ.get(FOLDER)] if folder] + [own]
    for place in places:
        if (place / f"{family}.so").is_file():
            return place / f"{family}.so"
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"{family}.so is not in {looked}; build //kernels/{family}, or set {FOLDER} to its folder")


def load(family: str) -> None:
    """Loads the library of a family into torch, once: its operators are then in torch.ops.moet."""
    if family not in _loaded:
        torch.ops.load_library(str(path(family)))
        _loaded.add(family)
