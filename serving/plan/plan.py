"""A plan: from the settings of a server to the tokens of its KV cache, in every format."""

from collections.abc import Iterator
from dataclasses import dataclass

from serving.launch.settings import Settings
from serving.plan import memory, published
from serving.plan.blocks import Capacity, Demand, Layout, layout, longest
from serving.plan.geometry import LINES, Geometry, Record
from serving.plan.measured import Measured
from serving.plan.memory import GIB, Budget
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Format:
    """Records and index keys of one pair of formats, and what fits: the usual, the least and the most.

    `refused` says why the profile does not take it; "" where it does. `chosen`: whether the settings ask for it.
    `longest` is the longest context that vLLM would start with.
    """

    record: Record
    index_key: str
    chosen: bool
    refused: str
    layout: Layout
    usual: Capacity
    least: Capacity
    most: Capacity
    longest: int

    @property
    def starts(self) -> bool:
        """Whether vLLM would start, with what is usually left."""
        return self.usual.blocks >= self.layout.least


@dataclass(frozen=True)
class Plan:
    """A plan. `budgets` are by format of the index keys, in GiB; None where the memory for the KV cache was given."""

    settings: Settings
    demand: Demand
    tp: int
    budgets: dict[str, Budget] | None
    formats: tuple[Format, ...]

    @property
    def chosen(self) -> Format:
        """The format that the settings ask for."""
        return next(one for one in self.formats if one.chosen)


def plan(
    settings: Settings, card: float | None = None, available: float | None = None, log: Measured | None = None
) -> Plan:
    """Plans the KV cache of a server.

    Args:
        settings: of every knob; none needs to be set.
        card: memory of a GPU in GiB, as CUDA counts it; None for RTX PRO 6000.
        available: memory for the KV cache in GiB, in place of what is reckoned.
        log: a server's figures, in place of what is published; with `available` not given.

    Raises UserError where the line's model is not known here.
    """
    line = settings.profile.line
    if line not in LINES:
        raise UserError(f"{line}: no model of this line is known to the planner; there are {', '.join(LINES)}")
    geometry = LINES[line]
    demand = _demand(settings)
    tp, utilization = _integer(settings, "TP"), float(str(settings.by_name["GPU_MEM_UTIL"].value))
    budgets = None
    if available is None:
        budgets = dict(_budgets(geometry, tp, demand.batch, utilization, card, log))
    formats = tuple(_formats(settings, geometry, demand, budgets, available))
    return Plan(settings, demand, tp, budgets, formats)


def least_blocks(settings: Settings) -> int | None:
    """Blocks that a server with these settings needs to start at all; None where its model or formats are not known."""
    geometry = LINES.get(settings.profile.line)
    if geometry is None:
        return None
    record, index_key = _asked(settings)
    records = [one for one in geometry.records if one.name == record]
    if not records or index_key not in geometry.index_keys:
        return None
    return layout(geometry, records[0], index_key, _demand(settings)).least


def over_utilization(found: Plan) -> list[tuple[float, Capacity]]:
    """What fits in the chosen format at each share of memory from 0.80 to 0.98; none where the memory was given."""
    if found.budgets is None:
        return []
    budget = found.budgets[found.chosen.index_key]
    shares = [number / 100 for number in range(80, 99)]
    return [(share, found.chosen.layout.capacity(budget.at(share).available[0] * GIB)) for share in shares]


def against_published() -> list[tuple[published.Case, Capacity]]:
    """What others measured, and what is reckoned here for the same memory."""
    return [
        (case, layout(LINES["dsv41"], case.record, case.index_key, case.demand).capacity(case.available_gib * GIB))
        for case in published.CASES
    ]


def _budgets(
    geometry: Geometry, tp: int, batch: int, utilization: float, card: float | None, log: Measured | None
) -> Iterator[tuple[str, Budget]]:
    for index_key in geometry.index_keys:
        if log is not None and log.card and log.consumed is not None and log.activation is not None:
            yield index_key, memory.measured(card or log.card, utilization, log.consumed, log.activation)
        else:
            yield index_key, memory.budget(geometry, published.MEMORY, index_key, tp, batch, utilization, card)


def _formats(
    settings: Settings,
    geometry: Geometry,
    demand: Demand,
    budgets: dict[str, Budget] | None,
    available: float | None,
) -> Iterator[Format]:
    record_knob, key_knob = settings.by_name["KV_RECORD"].knob, settings.by_name["INDEXER_KV_DTYPE"].knob
    most_context = int(settings.by_name["MAX_MODEL_LEN"].knob.maximum or demand.context)
    for record in geometry.records:
        for index_key in geometry.index_keys:
            found = layout(geometry, record, index_key, demand)
            sizes = budgets[index_key].available if budgets else (available or 0.0,) * 3
            usual, least, most = (found.capacity(size * GIB) for size in sizes)
            refused = record_knob.refused.get(record.name, "") or key_knob.refused.get(index_key, "")
            yield Format(
                record=record,
                index_key=index_key,
                chosen=(record.name, index_key) == _asked(settings),
                refused=refused,
                layout=found,
                usual=usual,
                least=least,
                most=most,
                longest=longest(geometry, record, index_key, demand, sizes[0] * GIB, most_context),
            )


def _demand(settings: Settings) -> Demand:
    names = ("MAX_MODEL_LEN", "MAX_NUM_BATCHED_TOKENS", "SPEC_TOKENS")
    return Demand(*(_integer(settings, name) for name in names))


def _asked(settings: Settings) -> tuple[str, str]:
    return settings.by_name["KV_RECORD"].text, settings.by_name["INDEXER_KV_DTYPE"].text


def _integer(settings: Settings, name: str) -> int:
    return int(str(settings.by_name[name].value))

