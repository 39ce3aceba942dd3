"""Which cells live in GPU memory, and in whose: in order of routing share per byte."""

from dataclasses import dataclass

import numpy as np

from serving.experts.placement.problem import Flags, Ints, PlanError, Problem

COLD = -1


@dataclass(frozen=True)
class Greedy:
    """What the greedy chose.

    Attributes:
        bin: [L, E] int64, the GPU memory of each cell, COLD (-1) for none.
        position: [L, E] int64, place of each cell in the order of share per byte, 0 first.
        floor: [L, E] bool, cells that are there for their layer's floor, before their turn.
        free: [B] int64 bytes left in each memory.
    """

    bin: Ints
    position: Ints
    floor: Flags
    free: Ints


def order(problem: Problem) -> Ints:
    """All cells (layer row * E + expert), the most routing per byte first.

    Ties: the smaller cell, then the lower layer and expert; so the value of a plan does not depend on the numbering.
    """
    size = problem.size.ravel()
    density = problem.value.ravel() / size
    return np.lexsort((size, -density)).astype(np.int64)


def greedy(problem: Problem) -> Greedy:
    """Fills the memories: first the floors, then every cell in order() that fits anywhere; others are skipped.

    Afterwards the cells of one size are dealt anew among the memories that hold that size, each keeping its number of
    them, so that every layer's load is spread. Raises PlanError where the floors do not fit, with the bytes that lack.
    """
    first = order(problem)
    size = problem.size.ravel()
    position = np.empty(len(first), dtype=np.int64)
    position[first] = np.arange(len(first))
    bins = np.full(len(first), COLD, dtype=np.int64)
    free = problem.budgets.copy()
    floor = _floors(problem, first, size, bins, free)
    fill(first[~floor[first]], size, bins, free)
    _spread(problem, position, size, bins)
    shape = problem.size.shape
    return Greedy(bins.reshape(shape), position.reshape(shape), floor.reshape(shape), free)


def fill(cells: Ints, size: Ints, bins: Ints, free: Ints) -> None:
    """Puts each of `cells` in turn into a memory that has room, in place; `bins` and `free` change.

    Args:
        cells: indices into `size` and `bins`, in the order in which they are tried.
        size: [N] int64 bytes.
        bins: [N] int64, filled where a cell is placed.
        free: [B] int64 bytes left.
    """
    done = 0
    while done < len(cells):
        rest = cells[done:]
        open_bins = np.flatnonzero(free >= size[rest].max())
        if not len(open_bins):
            _fill_tail(rest, size, bins, free)
            return
        # Whichever cell comes next fits into every open memory, until one of them overflows.
        turn = _boustrophedon(open_bins, len(rest))
        end = len(rest)
        for one in open_bins:
            mine = np.flatnonzero(turn == one)
            fits = int(np.searchsorted(np.cumsum(size[rest[mine]]), free[one], side="right"))
            if fits < len(mine):
                end = min(end, int(mine[fits]))
        placed = rest[:end]
        bins[placed] = turn[:end]
        free -= np.bincount(turn[:end], weights=size[placed], minlength=len(free)).astype(np.int64)
        done += end


def _fill_tail(cells: Ints, size: Ints, bins: Ints, free: Ints) -> None:
    """As fill(), where some cell fits nowhere: the next cell of each size is looked at, not every cell."""
    sizes, kind = np.unique(size[cells], return_inverse=True)
    queues = {int(one): iter(np.flatnonzero(kind == index).tolist()) for index, one in enumerate(sizes)}
    heads = {one: next(queue) for one, queue in queues.items()}
    while heads:
        widest = int(np.argmax(free))
        heads = {one: head for one, head in heads.items() if one <= free[widest]}
        if not heads:
            return
        one = min(heads, key=lambda each: heads[each])
        bins[cells[heads.pop(one)]] = widest
        free[widest] -= one
        if (after := next(queues[one], None)) is not None:
            heads[one] = after


def _floors(problem: Problem, first: Ints, size: Ints, bins: Ints, free: Ints) -> Flags:
    """Places the floors' cells; returns [N] bool, which they are."""
    floor = np.zeros(len(size), dtype=np.bool_)
    if not problem.floors.any():
        return floor
    floor = _first_of_layers(problem, first)
    smallest = _first_of_layers(problem, first[np.argsort(size[first], kind="stable")])
    for chosen in (floor, smallest):
        if int(size[chosen].sum()) > int(free.sum()):
            continue
        cells = first[chosen[first]]
        # The largest first, so that mixed sizes leave no holes.
        cells = cells[np.argsort(-size[cells], kind="stable")]
        trial, left = bins.copy(), free.copy()
        fill(cells, size, trial, left)
        if (trial[cells] != COLD).all():
            bins[:], free[:] = trial, left
            return chosen
    need, room, number = int(size[smallest].sum()), int(free.sum()), int(problem.floors.sum())
    lacking = need - room
    if lacking > 0:
        raise PlanError(
            f"floors: {number:,} cells of {need:,} bytes at least, budgets of {room:,} bytes: {lacking:,} bytes of GPU "
            f"memory are lacking; raise the budget or lower the floors"
        )
    raise PlanError(
        f"floors: {number:,} cells of {need:,} bytes do not pack into budgets of "
        f"{', '.join(f'{one:,}' for one in free)} bytes; raise one by a cell, {int(size[smallest].max()):,} bytes"
    )


def _first_of_layers(problem: Problem, cells: Ints) -> Flags:
    """[N] bool: the first floors[l] cells of each layer l, in the order given."""
    experts = problem.experts
    by_layer = cells[np.argsort(cells // experts, kind="stable")].reshape(len(problem.layers), experts)
    chosen = np.zeros(problem.size.size, dtype=np.bool_)
    chosen[by_layer[np.arange(experts)[None, :] < problem.floors[:, None]]] = True
    return chosen


def _boustrophedon(bins: Ints, count: int) -> Ints:
    """[count] memories in turn, there and back: 0 1 2 2 1 0 0 1 ..., so that none always gets the hottest."""
    lap = np.concatenate((bins, bins[::-1]))
    return np.resize(lap, count)


def _spread(problem: Problem, position: Ints, size: Ints, bins: Ints) -> None:
    """Deals the placed cells of each size anew; every memory keeps its number of them, so that its bytes stay.

    First how many of a layer's cells each memory gets, in proportion; then, in every layer, the hottest cell goes to
    the memory whose cells of that layer are asked for least so far.
    """
    held = np.flatnonzero(bins != COLD)
    share = problem.share.ravel()
    load = np.zeros((len(problem.layers), len(problem.budgets)))
    for one in np.unique(size[held])[::-1]:
        cells = held[size[held] == one]
        cells = cells[np.lexsort((position[cells], cells // problem.experts))]
        layer = cells // problem.experts
        left = np.zeros_like(load, dtype=np.int64)
        np.add.at(left, (layer, _even(np.bincount(bins[cells], minlength=load.shape[1]))), 1)
        turn = np.arange(len(cells)) - np.searchsorted(layer, layer)
        by_turn = np.argsort(turn, kind="stable")
        for now in np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]):
            rows = layer[now]
            chosen = np.argmin(np.where(left[rows] > 0, load[rows], np.inf), axis=1)
            bins[cells[now]] = chosen
            left[rows, chosen] -= 1
            load[rows, chosen] += share[cells[now]] * one


def _even(numbers: Ints) -> Ints:
    """Every memory b numbers[b] times, spread evenly, ties there and back."""
    of = np.repeat(np.arange(len(numbers)), numbers)
    at = np.concatenate([np.arange(number) for number in numbers]) if len(of) else of
    tie = np.where(at % 2 == 0, of, len(numbers) - 1 - of)
    return of[np.lexsort((tie, (at + 0.5) / np.maximum(numbers, 1)[of]))]
