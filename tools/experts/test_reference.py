import math

import numpy as np

from tools.experts import reference


def test_swiglu_by_definition() -> None:
    for gate in (-30.0, -1.0, 0.0, 0.5, 9.9, 10.0, 40.0):
        for up in (-40.0, -10.0, 0.25, 10.0, 11.0):
            clamped = min(gate, 10.0)
            expected = clamped / (1 + math.exp(-clamped)) * max(-10.0, min(10.0, up))
            assert reference.swiglu(np.array([gate]), np.array([up]), 10.0)[0] == np.float64(expected)
            free = reference.swiglu(np.array([gate]), np.array([up]), None)[0]
            assert free == np.float64(gate / (1 + math.exp(-gate)) * up)


def test_gate_has_no_lower_clamp() -> None:
    assert reference.swiglu(np.array([-20.0]), np.array([1.0]), 10.0)[0] == -20 / (1 + math.exp(20))


def test_extremes() -> None:
    found = reference.swiglu(np.array([-1e4, np.nan, 1e300, np.inf]), np.array([1.0, 1.0, np.inf, 1.0]), 10.0)
    assert (
        found[0] == 0
        and np.isnan(found[1])
        and np.allclose(found[2:], [100 / (1 + math.exp(-10)), 10 / (1 + math.exp(-10))])
    )


def test_clamp_changes_an_expert() -> None:
    generator = np.random.default_rng(0)
    x, w1, w3 = generator.normal(size=(3, 8)) * 10, generator.normal(size=(6, 8)), generator.normal(size=(6, 8))
    w2 = generator.normal(size=(8, 6))
    clamped, free = (reference.expert(x, w1, w3, w2, limit) for limit in (10.0, None))
    assert clamped.shape == (3, 8) and not np.allclose(clamped, free)
    assert np.array_equal(reference.expert(x / 100, w1, w3, w2, 10.0), reference.expert(x / 100, w1, w3, w2, None))
