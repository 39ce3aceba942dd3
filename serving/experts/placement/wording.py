"""What `moet plan experts` prints."""

from collections.abc import Sequence

from serving.experts.placement.explain import Reason
from serving.experts.placement.outlook import Outlook, by_location
from serving.experts.placement.plan import Location, Plan
from serving.experts.placement.replan import Swap
from serving.experts.recipes.load import Recipe
from tools.cli.output import Output

_GIB = 2**30


def head(plan: Plan, recipe: Recipe, out: Output) -> None:
    """Model and cells."""
    model = plan.model
    cells, whole = plan.where.size, int(plan.whole_bytes.sum())
    out.line(f"{recipe.title}: {len(model.layers)} layers x {model.experts} experts, top-{model.top_k}", "bold")
    sizes = ", ".join(
        f"{name} {size:,} bytes" for name, size in zip(plan.formats, plan.format_bytes.tolist(), strict=True)
    )
    published = "" if recipe.full_gib is None else f"; published ~{recipe.full_gib:g}"
    out.line(f"{cells:,} cells ({sizes}), {whole / _GIB:,.1f} GiB{published}")


def show(found: Outlook, rest_ms: float | None, out: Output) -> None:
    """Prints a plan: memories, share and bound, hit rate, ranks, a decode step."""
    plan = found.plan
    out.line()
    rows = []
    for one, used, cells, share in zip(
        plan.locations, plan.used.tolist(), plan.cells.tolist(), by_location(found), strict=True
    ):
        budget = "as needed" if one.budget is None else f"{one.budget / _GIB:,.2f}"
        rows.append([_name(plan, one), _near(plan, one), budget, f"{used / _GIB:,.2f}", f"{cells:,}", f"{share:.2%}"])
    out.table(["memory", "near", ">budget GiB", ">experts GiB", ">cells", ">of routing"], rows)
    bound = found.bound
    if bound is not None:
        out.line(
            f"in GPU memory: {int(plan.hot.sum()):,} cells, {found.coverage:.4%} of the routing planned from; "
            f"at most {bound.share:.4%} ({bound.method}), gap {found.gap:.4%}"
        )
    hit = found.hit
    interval = "" if hit.low is None else f", 95 % interval {hit.low:.2%} to {hit.high:.2%}"
    least, most = float(hit.by_layer.min()), float(hit.by_layer.max())
    out.line(f"expected hit rate: {hit.share:.2%}{interval}; layers from {least:.2%} to {most:.2%}")
    out.line(f"  ({hit.method})")
    _ranks(found, out)
    _step(found, rest_ms, out)


def reason(one: Reason, out: Output) -> None:
    """Prints why a cell lives where it does."""
    out.line()
    out.line(f"layer {one.layer}, expert {one.expert}: {one.lives}", "bold")
    out.line(f"  {one.format}, {one.bytes:,} bytes; {one.share:.4%} of its layer, number {one.rank_in_layer} of it")
    out.line(f"  why: {one.why}")
    for move in one.moves:
        out.line(f"  moved by: {move}")


def swaps(plan: Plan, chosen: Sequence[Swap], before: float, after: float, out: Output) -> None:
    """Prints the swaps of an update."""
    rows = [
        [one.layer, one.brought, f"{one.brought_share:.3%}", one.dropped, f"{one.dropped_share:.3%}",
         "all" if one.rank < 0 else one.rank]
        for one in chosen
    ]  # fmt: skip
    if rows:
        out.table([">layer", ">brought in", ">share", ">dropped", ">share", ">rank"], rows)
    moved = sum(one.bytes for one in chosen)
    out.line(
        f"{len(chosen)} swaps in {len({one.layer for one in chosen})} of {len(plan.model.layers)} layers, "
        f"{moved / _GIB:.2f} GiB each way; the window's hit rate {before:.2%} -> {after:.2%}"
    )


def _ranks(found: Outlook, out: Output) -> None:
    plan, step = found.plan, found.step
    rows = []
    for rank in range(plan.ranks):
        maps = [plan.row_map(rank, row) for row in range(len(plan.model.layers))]
        counts = [
            sum(len(part) for part in parts) for parts in zip(*((m.hot, m.peer, m.cold) for m in maps), strict=True)
        ]
        read = [f"{one[rank] / 1e6:,.1f}" for one in (step.hbm, step.peer, step.pcie)]
        rows.append(
            [
                rank,
                *(f"{count:,}" for count in counts),
                f"{plan.vram(rank) / _GIB:.2f}",
                f"{plan.ram(rank) / _GIB:.2f}",
                *read,
            ]
        )
    out.line()
    tokens = f"{found.rows} token{'' if found.rows == 1 else 's'}"
    out.line(f"by rank; a decode step of {tokens}, which asks for {step.active:,.0f} cells", "bold")
    out.table(
        [">rank", ">hot", ">peer", ">cold", ">VRAM GiB", ">RAM GiB", ">HBM MB/step", ">peer MB/step", ">PCIe MB/step"],
        rows,
    )


def _step(found: Outlook, rest_ms: float | None, out: Output) -> None:
    step = found.step
    span = (
        ""
        if step.low is None or step.high is None
        else f", {step.low * 1e3:.2f} to {step.high * 1e3:.2f} in the interval"
    )
    out.line(f"experts of a step: {step.seconds * 1e3:.2f} ms{span}", "bold")
    rates = found.plan.host.rates
    way = {"activations": "pcie"}
    rows = []
    for name, seconds in step.terms.items():
        rate = rates.get(way.get(name, name))
        why = "2 us a layer: fork and join of spinning threads" if rate is None else f"{rate.gbs:g} GB/s: {rate.source}"
        rows.append([name, f"{seconds * 1e3:.3f}", why])
    out.table(["term", ">ms", "bandwidth"], rows)
    if rest_ms is not None:
        whole = step.seconds * 1e3 + rest_ms
        out.line(
            f"with {rest_ms:g} ms for all else: {whole:.2f} ms, {1e3 / whole:.1f} steps/s"
            if whole
            else "no time at all"
        )


def _name(plan: Plan, one: Location) -> str:
    match one.tier:
        case "gpu":
            return "each rank's GPU" if plan.sharding == "split" else f"GPU of rank {one.ranks[0]}"
        case "peer":
            return f"bank {one.index}"
        case "ram":
            return f"RAM of node {one.index}"
        case "nvme":
            return "NVMe"


def _near(plan: Plan, one: Location) -> str:
    if one.tier == "gpu" and len(one.ranks) == 1:
        return f"node {plan.host.node_of(one.ranks[0])}"
    if one.tier == "ram":
        cores = plan.host.nodes[one.index].cores
        ranks = ", ".join(str(rank) for rank in one.ranks) or "none"
        return f"rank{'' if len(one.ranks) == 1 else 's'} {ranks}" + (f"; cores {cores}" if cores else "")
    return ""
