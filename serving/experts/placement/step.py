"""What a decode step's experts cost in time: a model of bytes over bandwidths, every term of which is shown.

In a step of `rows` tokens an expert with share s of its layer's routing is asked for with the chance
1 - (1 - min(1, top_k * s)) ** rows, as if tokens were routed independently; then all of its bytes are read once. A
layer ends when its slowest rank or node does, and layers follow each other. What is expected of each rank is taken
before the slowest is looked for, so that a real step, whose luck differs by rank, is slower. Arithmetic is not counted:
a decode step's experts are bound by bytes.

    fetch:  layer = max(over ranks: hbm + peer + pcie, over banks: peer, over nodes: ram) + nvme
    cpu:    layer = max(over ranks: hbm + peer, over banks: peer, over nodes: ram + activations + hand-over) + nvme

A bank has one link, over which all ranks read from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.experts.placement.plan import Plan
from serving.experts.placement.problem import Floats

# Of the CPU tier: activations go down in bf16 and come back in fp32; a fork and join of spinning threads.
_ACTIVATION_BYTES = 2 + 4
_HAND_OVER_SECONDS = 2.0e-6


@dataclass(frozen=True)
class Step:
    """One decode step's experts.

    Attributes:
        seconds: expected time of all layers.
        low, high: the same at the ends of the hit rate's interval; None without one.
        active: cells that are asked for.
        hbm, peer, pcie: [R] bytes a step and rank: of its own memory, of banks, over its link from the host.
        ram: [nodes] bytes of RAM read a step.
        nvme: bytes of NVMe read a step.
        terms: name of a term to seconds, summed over the layers at their slowest rank or node; the sum is `seconds`.
    """

    seconds: float
    low: float | None
    high: float | None
    active: float
    hbm: Floats
    peer: Floats
    pcie: Floats
    ram: Floats
    nvme: float
    terms: Mapping[str, float]


def activity(share: Floats, top_k: int, rows: int) -> Floats:
    """[L, E] chance that a cell is asked for in a step of `rows` tokens."""
    one = np.minimum(1.0, top_k * share)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(rows * np.log1p(-one)), dtype=np.float64)


def step(plan: Plan, share: Floats, rows: int, low: float | None = None, high: float | None = None) -> Step:
    """Returns the expected step.

    Args:
        plan: any plan.
        share: [L, E] routing to expect, as decode has it.
        rows: tokens of a step: requests times (1 + drafted tokens).
        low: lower end of the interval of the hit rate of `share`, where the step is slow.
        high: upper end.
    """
    active = activity(share, plan.model.top_k, rows)
    usual = _once(plan, active, rows)
    hit = float((share * plan.hot).sum(axis=1).mean())
    ends = [None if end is None else _once(plan, _scaled(plan, active, hit, end), rows).seconds for end in (high, low)]
    return Step(**{**vars(usual), "low": ends[0], "high": ends[1]})


def _scaled(plan: Plan, active: Floats, hit: float, wanted: float) -> Floats:
    """Activity as it would be with another hit rate: all hot cells by one factor, all others by another."""
    hot = wanted / hit if hit > 0 else 1.0
    cold = (1 - wanted) / (1 - hit) if hit < 1 else 1.0
    return np.minimum(1.0, active * np.where(plan.hot, hot, cold))


def _once(plan: Plan, active: Floats, rows: int) -> Step:
    host, ranks, layers = plan.host, plan.ranks, len(plan.model.layers)
    rate = {name: one.gbs * 1e9 for name, one in host.rates.items()}
    whole = active * plan.whole_bytes
    every = plan.sharding == "split"
    # A slice of a split cell is read by every rank.
    slices = active * plan.slice_bytes if every else whole
    hbm, peer, pcie = (np.zeros((ranks, layers)) for _ in range(3))
    ram, nvme = np.zeros((len(host.nodes), layers)), np.zeros(layers)
    handed, links = np.zeros((len(host.nodes), layers)), np.zeros((len(host.banks), layers))
    for index, location in enumerate(plan.locations):
        mask = plan.where == index
        for rank in range(ranks):
            mine = mask if every else mask & (plan.runs_on == rank)
            read = (slices * mine).sum(axis=1)
            if location.tier == "gpu":
                hbm[rank] += read
            elif location.tier == "peer":
                peer[rank] += read
                links[location.index] += read
            else:
                node = location.index if location.tier == "ram" else host.node_of(rank)
                # What one rank reads of RAM in slices, others read too: the node sends all of it.
                ram[node] += read
                if plan.cold == "fetch":
                    pcie[rank] += read
                else:
                    handed[node] = np.maximum(handed[node], mine.any(axis=1))
        if location.tier == "nvme":
            nvme += (whole * mask).sum(axis=1)
    if plan.cold == "cpu":
        for node, there in enumerate(host.nodes):
            pcie[min(there.ranks, default=0)] += handed[node] * rows * plan.model.hidden * _ACTIVATION_BYTES
    gpu: dict[str, Floats] = {"hbm": hbm / rate["hbm"], "peer": peer / rate["peer"]}
    node_terms: dict[str, Floats] = {"ram": ram / rate["ram"]}
    if plan.cold == "fetch":
        gpu["pcie"] = pcie / rate["pcie"]
    else:
        node_terms["activations"] = handed * rows * plan.model.hidden * _ACTIVATION_BYTES / rate["pcie"]
        node_terms["hand-over"] = handed * _HAND_OVER_SECONDS
    terms, layer = _slowest([gpu, node_terms, {"peer": links / rate["peer"]}])
    terms["nvme"] = float((nvme / rate["nvme"]).sum())
    return Step(
        seconds=float((layer + nvme / rate["nvme"]).sum()),
        low=None,
        high=None,
        active=float(active.sum()),
        hbm=hbm.sum(axis=1),
        peer=peer.sum(axis=1),
        pcie=pcie.sum(axis=1),
        ram=ram.sum(axis=1),
        nvme=float(nvme.sum()),
        terms={name: seconds for name, seconds in terms.items() if seconds},
    )


def _slowest(groups: Sequence[Mapping[str, Floats]]) -> tuple[dict[str, float], Floats]:
    """Terms [members, L] of groups (ranks, nodes, banks), whose members work side by side.

    Returns each term's seconds at every layer's slowest member, summed over layers; and [L] the layers' seconds.
    """
    whole = [np.sum(list(group.values()), axis=0) for group in groups]
    layer = np.arange(whole[0].shape[1])
    slowest = np.stack([one.max(axis=0, initial=0.0) for one in whole])
    group_of, terms = slowest.argmax(axis=0), dict[str, float]()
    for index, group in enumerate(groups):
        mine = group_of == index
        if mine.any():
            member = whole[index].argmax(axis=0)
            for name, one in group.items():
                terms[name] = terms.get(name, 0.0) + float(one[member, layer][mine].sum())
    return terms, np.asarray(slowest.max(axis=0), dtype=np.float64)
