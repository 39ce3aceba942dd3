"""Made-up routing is what its specification says, the same for a seed; and what is no specification."""

import numpy as np
import pytest

from serving.experts.residency import synthetic, trace
from serving.experts.residency.synthetic import Synthetic
from tools.cli.errors import UserError

SMALL = Synthetic(steps=20, layers=3, experts=16, top_k=4, rows=2, seed=3)


def test_made_up_routing_is_what_it_says() -> None:
    made = trace.checked(
        synthetic.make(Synthetic(steps=400, layers=2, experts=32, top_k=4, zipf=1.2, strength=0)), "made"
    )
    counts = -np.sort(-np.bincount(made.routed[:, 0].reshape(-1), minlength=32))
    assert counts[:4].sum() > 3 * counts[16:].sum()
    assert synthetic.make(SMALL).routed.tobytes() == synthetic.make(SMALL).routed.tobytes()
    assert (
        synthetic.make(SMALL).routed.tobytes()
        != synthetic.make(Synthetic(**{**vars(SMALL), "seed": 4})).routed.tobytes()
    )


def agreement(value: float) -> float:
    """How much the popularity of neighbouring layers' experts agrees."""
    made = synthetic.make(Synthetic(steps=400, layers=2, experts=32, top_k=4, zipf=1.2, agreement=value))
    counts = [np.bincount(made.routed[:, layer].reshape(-1), minlength=32) for layer in (0, 1)]
    return float(np.atleast_2d(np.corrcoef(np.array(counts)))[0, 1])


def test_layers_agree_and_topics_drift() -> None:
    assert agreement(1.0) > 0.9 > 0.5 > agreement(0.0)
    late = []
    for drift in (10.0, 1e6):
        made = synthetic.make(Synthetic(steps=400, layers=1, experts=32, top_k=4, zipf=0, strength=3, drift=drift))
        parts = [np.bincount(half.reshape(-1), minlength=32) for half in (made.routed[:200], made.routed[200:])]
        late.append(float(np.atleast_2d(np.corrcoef(np.array(parts)))[0, 1]))
    assert late[1] > 0.9 > late[0]


@pytest.mark.parametrize(
    "field", [{"steps": 0}, {"top_k": 17}, {"zipf": -1.0}, {"agreement": 1.5}, {"drift": 0.0}, {"zipf": float("nan")}]
)
def test_specs_that_are_none(field: dict[str, float]) -> None:
    with pytest.raises(UserError, match="expected"):
        Synthetic(**{**vars(SMALL), **field})
