from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from serving.experts.placement.eplb import read_eplb
from serving.experts.placement.problem import PlanError

# Two layers, four logical experts on six physical ones; expert 0 of layer 0 has two replicas, a slot of layer 1 none.
MAP = np.array([[0, 1, 2, 3, 0, 1], [0, 2, 3, 1, -1, 3]])


def window(steps: int = 3) -> "np.typing.NDArray[np.int32]":
    return np.arange(steps * 12, dtype=np.int32).reshape(steps, 2, 6)


def test_replicas_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, expert_load_window=window(), physical_to_logical_map=MAP)
    found = read_eplb(path, 4)
    assert found.layers == (0, 1) and found.windows is not None and found.windows.shape == (3, 2, 4)
    # Step 0, layer 0 has 0..5 and layer 1 has 6..11.
    assert found.windows[0].tolist() == [[0 + 4, 1 + 5, 2, 3], [6, 9, 7, 8 + 11]]
    assert (found.phases["all"] == found.windows.sum(axis=0)).all()


def test_ring_is_turned_and_empty_steps_go(tmp_path: Path) -> None:
    steps = window(4)[:, :, :4].copy()
    steps[2] = 0
    path = tmp_path / "w.safetensors"
    save_file({"expert_load_window": steps, "expert_load_window_step": np.array([1])}, path)
    found = read_eplb(path, 4)
    assert found.windows is not None
    assert found.windows.tolist() == [steps[1].tolist(), steps[3].tolist(), steps[0].tolist()]
    assert "1 of 4 steps have no token" in found.notes[0]


def test_array_of_logical_counts(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", window()[0, :, :4])
    found = read_eplb(tmp_path / "c.npy", 4)
    assert found.windows is None and found.phases["all"].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9]]


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"load": window()}, "has no tensor expert_load_window; it has load"),
        ({"expert_load_window": window()}, "has 6 experts, the model 4; physical experts need physical_to_logical_map"),
        ({"expert_load_window": window() * 0}, "has 6 experts"),
        ({"expert_load_window": window()[:, :, :4] * 0}, "all counts are zero"),
        ({"expert_load_window": window()[:, :, :4] - 5}, "layer 0, expert 0: is negative"),
        ({"expert_load_window": np.full((2, 1, 4), np.nan)}, "has a NaN or an infinity"),
        ({"expert_load_window": np.full((2, 1, 4), 0.5)}, "expected whole numbers"),
        ({"expert_load_window": np.full((2, 1, 4), 1e300)}, "expected whole numbers of tokens below 2^62"),
        ({"expert_load_window": np.full((2, 1, 4), 2**61)}, "layer 0: its counts overflow 64 bits"),
        ({"expert_load_window": np.full((2, 1, 4), 2**63, np.uint64)}, "overflows 64 bits"),
        ({"expert_load_window": np.zeros((4,), np.int64)}, "expected [window, layers, experts]"),
        ({"expert_load_window": np.zeros((0, 1, 4), np.int64)}, "expected [window, layers, experts]"),
        ({"expert_load_window": np.array([["a"]])}, "expected whole numbers, found"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP[:1]}, "of shape (2, 6), found (1, 6)"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP + 1}, "expected -1 to 3, found 0 to 4"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP * 0}, "layer 0 has no replica of expert 1"),
        ({"expert_load_window": window()[:, :, :4], "expert_load_window_step": np.array(3)}, "one number from 0 to 2"),
    ],
)
def test_what_is_refused(tmp_path: Path, tensors: "dict[str, np.typing.NDArray[np.int64]]", words: str) -> None:
    np.savez(tmp_path / "w.npz", allow_pickle=False, **tensors)
    with pytest.raises(PlanError) as error:
        read_eplb(tmp_path / "w.npz", 4)
    assert words in str(error.value) and "w.npz" in str(error.value)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
@pytest.mark.parametrize("text", [b"", b"PK\x03\x04rubbish", b"x" * 200, b"\x93NUMPY\x01\x00"])
def test_files_that_are_none(tmp_path: Path, suffix: str, text: bytes) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(text)
    with pytest.raises(PlanError, match="is no saved tensor"):
        read_eplb(path, 4)


def test_pickles_are_not_run(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(PlanError, match="is no saved tensor"):
        read_eplb(tmp_path / "w.npy", 4)
