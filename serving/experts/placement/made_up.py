"""Made-up routing for tests and the bench: seeded, skewed, with the real forms."""

from typing import Any

import numpy as np

from serving.experts.placement.counts import Counts
from serving.experts.placement.host import Host, Node, host
from serving.experts.placement.plan import Model, Plan, make
from serving.experts.placement.problem import Floats

# Bytes of model()'s cells in MXFP4.
CELL = 3 * 256 * 128 * 17 // 32


def model(layers: int = 4, experts: int = 16, top_k: int = 4) -> Model:
    """A small model whose MoE layers begin at 3; a cell has 3 x 256 x 128 weights."""
    return Model("made-up", tuple(range(3, 3 + layers)), experts, top_k, 256, 128)


def popularity(layers: int, experts: int, seed: int = 0, skew: float = 1.2) -> Floats:
    """[L, E] float64 shares, rows sum to 1: lognormal, so that a few experts take most of a layer."""
    drawn = np.random.Generator(np.random.PCG64(seed)).lognormal(0, skew, (layers, experts))
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True), dtype=np.float64)


def counted(share: Floats, tokens: int, top_k: int, seed: int = 0, layers: tuple[int, ...] | None = None) -> Counts:
    """Counts of `tokens` tokens, each routed to top_k experts."""
    random = np.random.Generator(np.random.PCG64(seed))
    rows = np.stack([random.multinomial(tokens * top_k, row) for row in share]).astype(np.int64)
    return Counts(layers or tuple(range(len(share))), {"all": rows})


def one_node(ranks: int, ram: int | None = None, nvme: int | None = None, banks: tuple[int, ...] = ()) -> Host:
    """A host of one NUMA node."""
    return host([Node("0-15", tuple(range(ranks)), ram)], ranks, banks, nvme)


def two_nodes(ranks: int, ram: int | None = None, nvme: int | None = None) -> Host:
    """A host of two NUMA nodes, half of the ranks near each."""
    half = ranks // 2
    nodes = [Node("0-15", tuple(range(half)), ram), Node("16-31", tuple(range(half, ranks)), ram)]
    return host(nodes, ranks, (), nvme)


def plan_of(budgets: list[int], **options: Any) -> Plan:
    """A plan of model(), experts 0 to 7 in MXFP4 and 8 to 15 in w2; `host` and make()'s other `options` as given."""
    share = popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    form[:, 8:] = 1
    where = options.pop("host", one_node(len(budgets)))
    return make(model(), where, share, form, ["mxfp4", "w2"], budgets, **options)
