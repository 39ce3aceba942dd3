"""What `moet plan kv` prints."""

from dataclasses import asdict
from typing import Any

from serving.plan.blocks import Capacity, Layout
from serving.plan.measured import Measured
from serving.plan.plan import Format, Plan, against_published, over_utilization
from tools.cli.output import Output

SCHEMA = "moet.plan-kv.v1"
_WIDTH = 40


def show(found: Plan, log: Measured | None, explain: bool, out: Output) -> None:
    """Prints a plan: memory, formats, tokens over the share of memory; with `explain` what each of it is made of."""
    _memory(found, explain, out)
    _formats(found, out)
    _verdict(found, out)
    if explain:
        _blocks(found.chosen, out)
        _published(out)
    if log is not None:
        _log(found, log, out)
    _plot(found, out)


def document(found: Plan, log: Measured | None) -> dict[str, Any]:
    """The plan as JSON has it. Memory is in GiB, sizes of blocks in bytes."""
    return {
        "schema": SCHEMA,
        "profile": found.settings.profile.line,
        "tp": found.tp,
        "max_model_len": found.demand.context,
        "max_num_batched_tokens": found.demand.batch,
        "memory": {key: {**asdict(one), "available": one.available} for key, one in (found.budgets or {}).items()},
        "formats": [_format(one) for one in found.formats],
        "over_utilization": [{"share": share, **asdict(fits)} for share, fits in over_utilization(found)],
        "published": [
            {"what": case.what, "available_gib": case.available_gib, "tokens": case.tokens, "reckoned": fits.tokens}
            for case, fits in against_published()
        ],
        "log": None if log is None else asdict(log),
    }


def _memory(found: Plan, explain: bool, out: Output) -> None:
    if found.budgets is None:
        return
    budget = found.budgets[found.chosen.index_key]
    out.line(f"memory of each GPU, TP {found.tp}, in GiB", "bold")
    rows = [["asked for", f"{budget.asked:.2f}", "", f"{budget.utilization:g} of {budget.card:g}"]]
    rows += [
        [term.name, f"-{term.usual:.2f}", _range(term.least, term.most), term.why if explain else ""]
        for term in budget.terms
    ]
    usual, least, most = budget.available
    rows.append(["left for the KV cache", f"{usual:.2f}", _range(least, most), ""])
    out.table(["", ">usual", ">from to", "how it is known" if explain else ""], rows)


def _range(least: float, most: float) -> str:
    return "" if least == most else f"{least:.2f} {most:.2f}"


def _formats(found: Plan, out: Output) -> None:
    out.line(f"tokens of the KV cache, requests up to {found.demand.context:,} tokens", "bold")
    rows = [
        [
            "->" if one.chosen else "",
            one.record.name,
            one.index_key,
            f"{one.layout.block_bytes:,}",
            f"{one.layout.blocks:,}",
            f"{one.usual.tokens:,}",
            "" if one.least == one.most else f"{one.least.tokens:,} {one.most.tokens:,}",
            f"{one.usual.concurrency:.2f}",
            "refused" if one.refused else "",
        ]
        for one in found.formats
    ]
    sizes = [">bytes a block", ">blocks a request", ">tokens", ">from to", ">requests"]
    out.table(["", "record", "index keys", *sizes, ""], rows)
    for why in dict.fromkeys(one.refused for one in found.formats if one.refused):
        out.line(f"refused: {why}")


def _verdict(found: Plan, out: Output) -> None:
    if found.chosen.starts:
        return
    longest = found.chosen.longest
    mend = f"MAX_MODEL_LEN={longest} would fit" if longest else "raise GPU_MEM_UTIL or TP"
    what = f"not one request of {found.demand.context:,} tokens fits; {mend}"
    out.line(f"vLLM would refuse to start: {what}", "bold red")


def _blocks(chosen: Format, out: Output) -> None:
    out.line(f"blocks of {chosen.layout.block_bytes:,} bytes", "bold")
    demand = chosen.layout.demand
    rows = [[group.what, group.layers, f"{group.bytes:,}", f"{group.blocks:,}"] for group in chosen.layout.groups]
    out.table(["group", ">pages", ">bytes of a block", ">blocks of a request"], rows)
    out.line(f"A request of {demand.context:,} tokens takes {chosen.layout.blocks:,} blocks, each group its own.")
    out.line(f"{demand.batches} steps of {demand.batch:,} tokens may be under way, and hold their sliding windows.")
    out.line("vLLM states tokens as: blocks there are / blocks of the longest request x its tokens.")


def _published(out: Output) -> None:
    out.line("what others measured, and what is reckoned here for the memory that they state", "bold")
    rows = []
    for case, fits in against_published():
        sizes = [f"{case.available_gib:.2f}", f"{case.tokens:,}", f"{fits.tokens:,}"]
        rows.append([case.what, *sizes, f"{_off(fits, case.tokens):+.2%}"])
    out.table(["server", ">GiB", ">measured", ">reckoned", ">off"], rows)


def _off(fits: Capacity, tokens: int) -> float:
    return fits.tokens / tokens - 1


def _log(found: Plan, log: Measured, out: Output) -> None:
    out.line(f"the log: {log.available:.2f} GiB for the KV cache", "bold")
    if log.tokens is None:
        return
    if log.context != found.demand.context:
        out.line(f"it is of a server with MAX_MODEL_LEN={log.context}: set that too, to compare")
        return
    fits = found.chosen.layout.capacity(log.available * (1 << 30))
    off = f"{_off(fits, log.tokens):+.2%}"
    out.line(f"it states {log.tokens:,} tokens; reckoned for its memory {fits.tokens:,} ({off})")


def _plot(found: Plan, out: Output) -> None:
    points = over_utilization(found)
    most = max((fits.tokens for _, fits in points), default=0)
    if not most:
        return
    out.line("tokens over GPU_MEM_UTIL, in the settings' formats", "bold")
    asked = found.settings.by_name["GPU_MEM_UTIL"].value
    for share, fits in points:
        mark = "" if fits.blocks >= found.chosen.layout.least else " too few for one request"
        mark += " <-" if share == asked else ""
        out.line(f"{share:.2f} {'█' * round(_WIDTH * fits.tokens / most):<{_WIDTH}} {fits.tokens:>12,}{mark}")


def _format(one: Format) -> dict[str, Any]:
    return {
        "record": one.record.name,
        "index_keys": one.index_key,
        "chosen": one.chosen,
        "refused": one.refused,
        "block_bytes": one.layout.block_bytes,
        "blocks_per_request": one.layout.blocks,
        "groups": _groups(one.layout),
        "usual": asdict(one.usual),
        "least": asdict(one.least),
        "most": asdict(one.most),
        "longest": one.longest,
    }


def _groups(found: Layout) -> list[dict[str, Any]]:
    return [asdict(group) for group in found.groups]
