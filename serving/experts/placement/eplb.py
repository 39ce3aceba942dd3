"""vLLM's own expert statistics (EPLB), saved as tensors.

vLLM 0.33.0 keeps them in EplbModelState (vllm/distributed/eplb/eplb_state.py) and writes no file itself: a hook saves
`expert_load_window` [window, MoE layers, physical experts] int32 and `physical_to_logical_map` [MoE layers, physical
experts] (-1: none), under these names. The window is a ring; `expert_load_window_step` says where it goes on. Each rank
has the tokens that it routed itself, so that the windows of all ranks of the expert-parallel group are to be added up.
Tokens of prefill and of decode are in it alike.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from serving.experts.placement.counts import Counts, checked
from serving.experts.placement.problem import Ints, PlanError, cut

SUFFIXES = (".npz", ".npy", ".safetensors")
_WINDOW, _MAP, _STEP = "expert_load_window", "physical_to_logical_map", "expert_load_window_step"
# 1000 steps of 92 layers and 1024 experts in int32 are a tenth of it.
_MOST_BYTES = 2**32


def read_eplb(path: Path, experts: int) -> Counts:
    """Reads a saved window: .npz or .safetensors with the names above, or .npy of [.., L, experts] logical counts.

    `experts` is the model's number of logical experts. Replicas are summed by the map, as vLLM does; steps without a
    token are dropped. Layers are numbered 0..L-1. Raises PlanError that names the file and the tensor.
    """
    tensors = _load(path)
    if _WINDOW not in tensors:
        raise PlanError(
            f"{path}: has no tensor {_WINDOW}; it has {cut(', '.join(map(repr, sorted(tensors)))) or 'none'}"
        )
    window = tensors[_WINDOW]
    if window.dtype.kind == "f":
        if not np.isfinite(window).all():
            raise PlanError(f"{path}: {_WINDOW}: has a NaN or an infinity")
        if (window != np.floor(window)).any() or (np.abs(window) >= 2.0**62).any():
            raise PlanError(f"{path}: {_WINDOW}: expected whole numbers of tokens below 2^62")
    elif window.dtype.kind not in "iu":
        raise PlanError(f"{path}: {_WINDOW}: expected whole numbers, found {window.dtype}")
    elif window.dtype == np.uint64 and (window >= 2**62).any():
        raise PlanError(f"{path}: {_WINDOW}: overflows 64 bits")
    if window.ndim < 2 or window.size == 0:
        raise PlanError(f"{path}: {_WINDOW}: expected [window, layers, experts], found shape {window.shape}")
    steps = window.reshape(-1, *window.shape[-2:]).astype(np.int64)
    layers = tuple(range(steps.shape[1]))
    checked(steps, layers, f"{path}: {_WINDOW}")
    if _MAP in tensors:
        steps = _logical(steps, tensors[_MAP], experts, str(path))
    elif steps.shape[2] != experts:
        raise PlanError(
            f"{path}: {_WINDOW}: has {steps.shape[2]} experts, the model {experts}; physical experts need {_MAP}"
        )
    if _STEP in tensors:
        step = tensors[_STEP]
        if step.size != 1 or step.dtype.kind not in "iu" or not 0 <= int(step.ravel()[0]) < len(steps):
            raise PlanError(f"{path}: {_STEP}: expected one number from 0 to {len(steps) - 1}")
        steps = np.roll(steps, -int(step.ravel()[0]), axis=0)
    seen = steps.reshape(len(steps), -1).max(axis=1) > 0
    if not seen.any():
        raise PlanError(f"{path}: {_WINDOW}: all counts are zero")
    notes = () if seen.all() else (f"{path}: {int((~seen).sum())} of {len(seen)} steps have no token: dropped",)
    kept = steps[seen]
    return Counts(layers, {"all": kept.sum(axis=0)}, kept if len(kept) > 1 else None, notes)


def _load(path: Path) -> dict[str, npt.NDArray[Any]]:
    # So that an error of the file itself is told apart from those of its content.
    path.open("rb").close()
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        read = np.load(path, allow_pickle=False)
        if isinstance(read, np.ndarray):
            return {_WINDOW: read}
        with read:
            unpacked = sum(one.file_size for one in read.zip.infolist())
            if unpacked > _MOST_BYTES:
                raise PlanError(f"{path}: unpacks to {unpacked:,} bytes, more than {_MOST_BYTES:,}; save fewer steps")
            return {name: read[name] for name in read.files}
    except PlanError:
        raise
    except Exception as error:
        # zipfile, zlib, tokenize and numpy each have errors of their own for damage; no list of them is promised.
        why = cut(str(error).split("\n")[0], 120)
        raise PlanError(f"{path}: is no saved tensor ({', '.join(SUFFIXES)}): {why or type(error).__name__}") from None


def _logical(steps: Ints, given: npt.NDArray[Any], experts: int, path: str) -> Ints:
    """[W, L, E] sums of the physical experts' counts over each logical expert's replicas."""
    if given.shape != steps.shape[1:] or given.dtype.kind not in "iu":
        raise PlanError(f"{path}: {_MAP}: expected whole numbers of shape {steps.shape[1:]}, found {given.shape}")
    if int(given.max()) >= experts or int(given.min()) < -1:
        raise PlanError(f"{path}: {_MAP}: expected -1 to {experts - 1}, found {given.min()} to {given.max()}")
    logical = np.zeros((*steps.shape[:2], experts), dtype=np.int64)
    for row in range(steps.shape[1]):
        there = given[row] >= 0
        at = given[row][there].astype(np.int64)
        np.add.at(logical[:, row].T, at, steps[:, row][:, there].T)
        if len(np.unique(at)) < experts:
            missing = sorted(set(range(experts)) - set(at.tolist()))
            raise PlanError(f"{path}: {_MAP}: layer {row} has no replica of expert {missing[0]}")
    return logical
