"""moet plan experts."""

import argparse
from pathlib import Path

from serving.experts.placement import explain, options, outlook, plan, plan_file, replan, request, sweep, wording
from serving.experts.placement.counts import Counts, shares
from serving.experts.placement.problem import PlanError
from serving.experts.recipes import load
from tools.cli.output import Output
from tools.moet.verb import Verb

SCHEMA = "moet.plan-experts-report.v1"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "recipe", metavar="RECIPE", help="name of a recipe, or path of a .toml with a model's own geometry"
    )
    add = parser.add_argument
    add(
        "--counts",
        type=Path,
        required=True,
        metavar="FILE",
        help="routing counts: .json, or .npz, .npy, .safetensors of EPLB",
    )
    add("--split", default="train", metavar="NAME", help="key of the counts in the JSON (default: train)")
    add("--held-out", type=Path, metavar="FILE", help="counts to judge the plan by (default: a part of --counts)")
    add("--held-out-split", default="train", metavar="NAME", help="key of the counts in --held-out (default: train)")
    add("--hold-out", type=float, default=0.2, metavar="SHARE", help="part of --counts to judge by (default: 0.2)")
    add("--phases", default="decode=1,prefill=0.25", metavar="LIST", help="weights (default: decode=1,prefill=0.25)")
    add("--ranks", type=int, metavar="N", help="GPUs that compute (default: as published)")
    add(
        "--hot-gib",
        metavar="GIB[,GIB]",
        help="GPU memory for experts, one for all ranks or one each (default: as published)",
    )
    add("--sharding", choices=("whole", "split"), default="whole", help="a cell on one rank, or a slice of it on each")
    add(
        "--cold",
        choices=("fetch", "cpu"),
        default="fetch",
        help="cells in RAM: GPUs read them, or the CPU computes them",
    )
    add("--format", metavar="NAME", help="of all cells: w2, mxfp4, nvfp4, fp8, bf16 (default: the recipe's)")
    add("--cells", action="append", default=[], metavar="LAYERS[:EXPERTS]=NAME", help="another format for some cells")
    add(
        "--floor",
        action="append",
        default=[],
        metavar="[LAYERS=]N",
        help="experts in GPU memory that a layer has at least",
    )
    add("--host", metavar="FILE", help="NUMA nodes, banks, NVMe, bandwidths from a .toml; `this`: nodes from /sys")
    add("--ram-gib", metavar="GIB", help="RAM for experts (default: as needed)")
    add("--nvme-gib", metavar="GIB", help="NVMe for experts (default: none where RAM is given)")
    add("--bank-gib", metavar="GIB[,GIB]", help="memory of GPUs that only hold experts for the ranks")
    add("--bandwidth", metavar="NAME=GBS[,..]", help="hbm, peer, pcie, ram, nvme in GB/s, in place of the defaults")
    add("--rows", type=int, default=1, metavar="N", help="tokens of a decode step (default: 1)")
    add("--rest-ms", metavar="MS", help="time of a step beside the experts, for steps/s")
    add("--explain", action="append", default=[], metavar="LAYER:EXPERT", help="why it lives where it does")
    add("--plot", action="store_true", help="hit rate and time over the budget")
    add("--out", type=Path, metavar="FILE", help="write the plan as JSON")
    add("--update", type=Path, metavar="PLAN", help="do not plan anew: a few swaps in a plan of before")
    add("--steps", type=int, metavar="N", help="decode steps that --counts cover, for --update (EPLB: the window's)")
    add("--max-swaps", type=int, default=replan.SWAPS_A_LAYER, metavar="N", help="swaps a layer at most (default: 2)")
    add("--margin", type=float, default=replan.MARGIN, metavar="X", help="a swap's shares differ by (default: 1.25)")
    add("--seed", type=int, default=0, metavar="N", help="of what is drawn at random (default: 0)")


def run(given: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    recipe = load.load(given.recipe)
    weights = request.phase_weights(given.phases)
    if given.seed < 0:
        raise PlanError(f"--seed: expected a number from 0 on, found {given.seed}")
    usual = argparse.ArgumentParser()
    arguments(usual)
    options.refuse_idle(given, usual)
    counts = request.read_counts(given.counts, recipe.model, given.split)
    for note in counts.notes:
        out.note(note)
    if given.update is not None:
        return _update(given, recipe, counts, weights, out)
    train, held = options.parts(given, recipe, counts)
    planned = shares(train, weights)
    names, form = request.formats(recipe.model, given.format or recipe.format, given.cells)
    budgets = options.budgets(given, recipe)
    found = plan.make(
        recipe.model,
        options.place(given, len(budgets)),
        planned,
        form,
        names,
        budgets,
        request.floors(recipe.model, given.floor),
        given.sharding,
        given.cold,
    )
    rest_ms = None if given.rest_ms is None else request.number(given.rest_ms, "--rest-ms")
    judged = outlook.look(found, planned, held, weights, given.rows)
    reasons = [explain.explain(found, *request.cell(text)) for text in given.explain]
    points = sweep.sweep(found, planned, judged.judged, judged.decode, given.rows) if given.plot else []
    evidence = outlook.evidence(judged, options.inputs(given, weights))
    if given.out is not None:
        plan_file.write(given.out, found, evidence)
    wording.head(found, recipe, out)
    wording.show(judged, rest_ms, out)
    for reason in reasons:
        wording.reason(reason, out)
    if points:
        out.line()
        out.text(sweep.plot(points, found.ranks) + "\n")
    if given.out is not None:
        out.note(f"wrote {given.out}")
    out.document(
        {
            "schema": SCHEMA,
            "recipe": recipe.model.name,
            "plan": None if given.out is None else str(given.out),
            **evidence,
            "locations": [
                {"tier": one.tier, "index": one.index, "ranks": list(one.ranks), "budget": one.budget, "bytes": used}
                for one, used in zip(found.locations, found.used.tolist(), strict=True)
            ],
            "explained": [reason.document() for reason in reasons],
            "sweep": [vars(point) for point in points],
        }
    )
    return 0


def _update(
    given: argparse.Namespace, recipe: load.Recipe, counts: Counts, weights: dict[str, float], out: Output
) -> int:
    before, evidence = plan_file.read(given.update)
    if before.model != recipe.model:
        raise PlanError(
            f"{given.update}: is a plan of {before.model.name}, not of {recipe.model.name} as the recipe has it"
        )
    steps = given.steps if given.steps is not None else None if counts.windows is None else len(counts.windows)
    if steps is None:
        raise PlanError("--update: --steps is needed: how many decode steps the counts cover")
    share = shares(counts, weights)
    chosen = replan.swaps(before, share, steps, per_layer=given.max_swaps, margin=given.margin)
    after = replan.apply(before, chosen)
    rates = [float((share * one.hot).sum(axis=1).mean()) for one in (before, after)]
    rate = {"before": rates[0], "after": rates[1]}
    if given.out is not None:
        updates = [
            *evidence.get("updates", []),
            {"counts_sha256": request.digest(given.counts), "swaps": len(chosen), "hit_rate": rate},
        ]
        plan_file.write(given.out, after, {**evidence, "updates": updates})
    if steps < replan.WINDOW_STEPS:
        out.note(f"{steps} steps are too few to judge by, {replan.WINDOW_STEPS} are needed: nothing is swapped")
    wording.swaps(before, chosen, rates[0], rates[1], out)
    if given.out is not None:
        out.note(f"wrote {given.out}")
    out.document(
        {
            "schema": "moet.plan-experts-update.v1",
            "recipe": recipe.model.name,
            "plan": None if given.out is None else str(given.out),
            "hit_rate": rate,
            "swaps": [vars(one) for one in chosen],
        }
    )
    return 0


VERB = Verb(
    summary="where the experts of a model that does not fit live, what hits, and what a step costs",
    description="""Nothing is started, and no GPU is needed. Experts of all layers are placed in the order of routing
share per byte: GPU memory of the ranks, memory of other GPUs (banks), RAM by NUMA node, NVMe. The plan is printed with
the best that any placement could reach, with the hit rate to expect on counts that it has not seen, and with the time
of a decode step's experts, each term of it with the bandwidth that it rests on. Assumed bandwidths say so: measure
yours, see --bandwidth.

Counts are {"train": {"decode|prefill": {layer: [E]}}} or {layer: {"counts": [E]}}, or vLLM's expert_load_window as .npz
or .safetensors. What has a NaN, a negative number, a missing layer or an overflow is refused.

With --update, a plan of before is kept up with new counts: at most two swaps a layer, each by a share 1.25 times the
other's, once 2000 steps are seen.""",
    arguments=arguments,
    run=run,
    examples=(
        ("plan experts deepseek-v4.1-flash --counts counts.json --out plan.json", "the published 4 x 52 GiB"),
        ("plan experts glm-5.3 --counts window.npz --hot-gib 36 --rows 6 --plot", "a step of six tokens"),
        ("plan experts glm-5.3-flash --counts c.json --ranks 1 --hot-gib 20 --ram-gib 100 --nvme-gib 900 --cold cpu",
         "one small card and the CPU"),
        ("plan experts glm-5.3 --counts counts.json --explain 12:34", "why expert 34 of layer 12 lives where it does"),
        ("plan experts glm-5.3 --counts new.json --steps 2000 --update plan.json --out plan.json", "a few swaps"),
    ),
)  # fmt: skip
