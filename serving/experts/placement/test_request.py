from pathlib import Path

import numpy as np
import pytest

from serving.experts.placement import request
from serving.experts.placement.formats import cell_bytes
from serving.experts.placement.made_up import model, one_node, plan_of, popularity
from serving.experts.placement.plan import Sharding
from serving.experts.placement.problem import PlanError
from serving.experts.placement.sweep import sweep


def test_a_split_of_eplbs_counts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "window.npz"
    np.savez(path, expert_load_window=np.ones((1, 2, 4), np.int32))
    assert request.read_counts(path, model(layers=2, experts=4)).experts == 4
    with pytest.raises(
        PlanError, match=r"window\.npz: has one set of counts, and no split 'test'; leave the split out"
    ):
        request.read_counts(path, model(layers=2, experts=4), "test")


def test_cells_of_other_formats() -> None:
    names, form = request.formats(model(), "mxfp4", ["3-4=w2", "4:5=bf16", "6:14-15=w2"])
    expected = np.zeros((4, 16), np.int64)
    expected[:2], expected[1, 5], expected[3, 14:] = 1, 2, 1
    assert names == ("mxfp4", "w2", "bf16") and form.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("form", "size"),
    [("w2", 27_648), ("mxfp4", 52_224), ("nvfp4", 55_296), ("fp8", 98_304 + 6 * 4), ("bf16", 196_608)],
)
def test_bytes_of_a_cell(form: str, size: int) -> None:
    # 3 x 256 x 128 weights: 3,072 blocks of 32, 6,144 of 16, six of 128 x 128.
    assert cell_bytes(form, 256, 128) == size


def test_floors_of_layers() -> None:
    assert request.floors(model(), ["2", "4-5=7", "5=0"]).tolist() == [2, 7, 0, 2]
    assert request.floors(model(), []).tolist() == [0] * 4


@pytest.mark.parametrize("sharding", ["whole", "split"])
def test_sweep_goes_from_nothing_to_everything(sharding: Sharding) -> None:
    plan = plan_of([0] * 3, sharding=sharding, host=one_node(3, 0))
    share = popularity(4, 16)
    points = sweep(plan, share, share, share, 1)
    assert points[0].share == points[0].bytes == 0 and points[-1].share == pytest.approx(1)
    # No more than a cell a rank beyond what is there.
    slices = plan.slice_bytes * (3 if sharding == "split" else 1)
    assert points[-1].bytes <= slices.sum() + 3 * plan.slice_bytes.max()
