import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from serving.experts.placement import eplb
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
        ({"load": window()}, "has no tensor expert_load_window; it has 'load'"),
        ({"expert_load_window": window()}, "has 6 experts, the model 4; physical experts need physical_to_logical_map"),
        ({"expert_load_window": window() * 0}, "has 6 experts"),
        ({"expert_load_window": window()[:, :, :4] * 0}, "all counts are zero"),
        ({"expert_load_window": window()[:, :, :4] - 5}, "layer 0, expert 0: is negative"),
        ({"expert_load_window": np.full((2, 1, 4), np.nan)}, "has a NaN or an infinity"),
        ({"expert_load_window": np.full((2, 1, 4), 0.5)}, "expected whole numbers"),
        ({"expert_load_window": np.full((2, 1, 4), 1e300)}, "expected whole numbers of tokens below 2^62"),
        ({"expert_load_window": np.full((2, 1, 4), 2.0**63)}, "expected whole numbers of tokens below 2^62"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP - 2}, "expected -1 to 3, found -3 to 1"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP - (MAP < 0)}, "found -2 to 3"),
        ({"expert_load_window": np.full((2, 1, 4), 2**61)}, "layer 0: its counts overflow 64 bits"),
        ({"expert_load_window": np.full((2, 1, 4), 2**63, np.uint64)}, "overflows 64 bits"),
        ({"expert_load_window": np.zeros((4,), np.int64)}, "expected [window, layers, experts]"),
        ({"expert_load_window": np.zeros((0, 1, 4), np.int64)}, "expected [window, layers, experts]"),
        ({"expert_load_window": np.array([["a"]])}, "expected whole numbers, found"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP[:1]}, "of shape (2, 6), found (1, 6)"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP + 1}, "expected -1 to 3, found 0 to 4"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP * 0}, "layer 0 has no replica of expert 1"),
        ({"expert_load_window": window()[:, :, :4], "expert_load_window_step": np.array(3)}, "one number from 0 to 2"),
        ({"expert_load_window": window()[:, :, :4], "expert_load_window_step": np.nan}, "one number from 0 to 2"),
        ({"expert_load_window": window()[:, :, :4], "expert_load_window_step": np.array(["a"])}, "one number from 0"),
        ({"expert_load_window": window(), "physical_to_logical_map": MAP.astype(float)}, "whole numbers of shape"),
        ({"a\nb" * 99: window()}, "has no tensor expert_load_window; it has 'a\\nb"),
    ],
)
def test_what_is_refused(tmp_path: Path, tensors: "dict[str, np.typing.NDArray[np.int64]]", words: str) -> None:
    np.savez(tmp_path / "w.npz", allow_pickle=False, **tensors)
    with pytest.raises(PlanError) as error:
        read_eplb(tmp_path / "w.npz", 4)
    assert words in str(error.value) and "w.npz" in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


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


@pytest.mark.parametrize("name", ["w.npz", "w.npy", "w.safetensors"])
def test_damage_anywhere_is_refused_in_one_line_or_is_no_damage(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    steps = window()[:, :, :4].copy()
    if path.suffix == ".npz":
        np.savez_compressed(path, expert_load_window=steps)
    elif path.suffix == ".npy":
        np.save(path, steps)
    else:
        save_file({"expert_load_window": steps}, path)
    whole = path.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in (1, 128)]
    damaged += [whole[:at] for at in range(0, len(whole), 7)]
    refused: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in damaged:
            path.write_bytes(text)
            try:
                read_eplb(path, 4)
            except PlanError as error:
                refused.append(str(error))
    assert all("\n" not in words and len(words) < 500 for words in refused)
    assert len(refused) > len(damaged) / 4


def test_shape_that_no_memory_holds(tmp_path: Path) -> None:
    path = tmp_path / "w.npy"
    np.save(path, window())
    path.write_bytes(path.read_bytes().replace(b"(3, 2, 6), }" + b" " * 12, b"(3000000000000, 2, 6), }"))
    with pytest.raises(PlanError, match="is no saved tensor"):
        read_eplb(path, 6)


def test_archive_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "w.npz", expert_load_window=np.ones((100, 2, 4), np.int64))
    assert read_eplb(tmp_path / "w.npz", 4).windows is not None
    monkeypatch.setattr(eplb, "_MOST_BYTES", 6000)
    with pytest.raises(PlanError, match=r"w\.npz: unpacks to 6,[0-9]{3} bytes, more than 6,000; save fewer steps"):
        read_eplb(tmp_path / "w.npz", 4)


def test_type_that_numpy_has_not(tmp_path: Path) -> None:
    header = b'{"expert_load_window":{"dtype":"BF16","shape":[1,4],"data_offsets":[0,8]}}'
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(PlanError, match=r"w\.safetensors: is no saved tensor"):
        read_eplb(tmp_path / "w.safetensors", 4)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    for suffix in eplb.SUFFIXES:
        with pytest.raises(FileNotFoundError):
            read_eplb(tmp_path / f"w{suffix}", 4)
    (tmp_path / "w.npy").mkdir()
    with pytest.raises(IsADirectoryError):
        read_eplb(tmp_path / "w.npy", 4)
