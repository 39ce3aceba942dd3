"""Where the cells live that no GPU memory of a rank holds: peers' banks, RAM by NUMA node, NVMe; and who runs them."""

from dataclasses import dataclass

import numpy as np

from serving.experts.placement.greedy import fill
from serving.experts.placement.host import Host
from serving.experts.placement.problem import Floats, Ints, PlanError, gib


@dataclass(frozen=True)
class Cold:
    """Placement of the other cells.

    Attributes:
        place: [N] int64 per cell given: bank b as b, RAM of node n as banks + n, NVMe as banks + nodes.
        runs_on: [N] int64, the rank that reads the cell.
    """

    place: Ints
    runs_on: Ints


def place(cells: Ints, share: Floats, whole: Ints, host: Host, ranks: int) -> Cold:
    """Places cells, given in order of share per byte: banks first, then RAM, then NVMe; each where there is room.

    A cell in RAM is read by a rank near its node, a node without ranks serves all, as banks and NVMe do; the cells of
    each memory go around its ranks there and back, those with the most traffic first.

    Args:
        cells: [N] indices into the arrays.
        share: [all cells] routing share.
        whole: [all cells] bytes; a bank, RAM and NVMe hold every slice of a cell that is split.
        host: budgets of banks, nodes and NVMe.
        ranks: number of ranks.

    Raises PlanError with the bytes that lack.
    """
    nodes, banks = len(host.nodes), len(host.banks)
    found = np.full(len(share), -1, dtype=np.int64)
    if banks:
        fill(cells, whole, found, np.array(host.banks, dtype=np.int64))
    rest = cells[found[cells] < 0]
    unlimited = [index for index, node in enumerate(host.nodes) if node.ram is None]
    need = int(whole[rest].sum())
    room = np.array([need if node.ram is None else node.ram for node in host.nodes], dtype=np.int64)
    if unlimited:
        # As much on each as its share of ranks asks for, so that near reads stay near.
        weight = np.array([len(host.nodes[index].ranks) for index in unlimited], dtype=np.float64)
        weight = weight if weight.any() else np.ones(len(unlimited))
        spare = max(0, need - int(sum(node.ram or 0 for node in host.nodes)))
        largest = int(whole[rest].max()) if len(rest) else 0
        for index, part in zip(unlimited, np.ceil(spare * weight / weight.sum()).tolist(), strict=True):
            room[index] = int(part) + largest * len(unlimited)
    in_ram = np.full(len(share), -1, dtype=np.int64)
    fill(rest, whole, in_ram, room)
    ram = in_ram >= 0
    found[ram] = banks + in_ram[ram]
    rest = rest[found[rest] < 0]
    lacking = int(whole[rest].sum()) - (int(whole[rest].sum()) if host.nvme is None else host.nvme)
    if lacking > 0:
        raise PlanError(
            f"RAM and NVMe: {len(rest):,} cells of {int(whole[rest].sum()):,} bytes find no room in RAM, and NVMe has "
            f"{host.nvme or 0:,}: {lacking:,} bytes ({gib(lacking)}) are lacking; raise the RAM's, the NVMe's or the "
            f"GPUs' budget, or choose a smaller format"
        )
    found[rest] = banks + nodes
    return Cold(found[cells], _readers(found[cells], share[cells] * whole[cells], host, ranks))


def _readers(places: Ints, traffic: Floats, host: Host, ranks: int) -> Ints:
    """[N] rank that reads each cell: among those near it, in turn there and back by traffic."""
    reads = np.zeros(len(places), dtype=np.int64)
    by_traffic = np.argsort(-traffic, kind="stable")
    for location in np.unique(places):
        node = location - len(host.banks)
        near = host.nodes[node].ranks if 0 <= node < len(host.nodes) else ()
        near = near or tuple(range(ranks))
        mine = by_traffic[places[by_traffic] == location]
        reads[mine] = np.resize(np.array(near + near[::-1], dtype=np.int64), len(mine))
    return reads
