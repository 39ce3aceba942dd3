"""moet experts simulate."""

from serving.experts.residency import options
from tools.moet.verb import Verb

VERB = Verb(
    summary="hit rates of expert slots on a routing trace, by policy and size of the pool, beside the optimum",
    description="""Runs the slot cache that serves, and others, on the routing of a model, recorded or made up.

Mode demand is about base slots: whatever a step asks for comes in, the step runs again, and nothing is lost but time.
Belady's policy is the least that any can miss; it is no bound for steps without a miss, which it does not aim at. Mode
promote is about delta slots: the hottest experts get one in passes with a budget, and nobody waits; there a bound takes
the place of Belady: it knows the trace, and swaps at no cost.

A pool must be at its floor: what the largest step can ask of a layer. Below it, --force-pool computes steps that do not
fit layer by layer or in parts. A trace tells the routing of the last pass only, so replays are at least and at most.
Times follow from the step and the link as given, not from a measurement.

Traces: .npz or .jsonl as --save-trace writes them, or .npy integers [tokens, layers, top_k], one a request, which then
run side by side; --experts says how many a layer has.""",
    arguments=options.add_arguments,
    run=options.run,
    examples=(
        ("experts simulate", "a small model, made up, with all policies and 8 sizes"),
        ("experts simulate --layers 40 --experts 384 --steps 10000 --csv out.csv --svg out.svg", "a large one"),
        ("experts simulate routing.npz --pool 96 --pool 24GiB --policy ours --policy belady", "a recorded trace"),
        ("experts simulate --mode promote --kind quintal --rules w2", "delta slots with the rules of the 2-bit line"),
        ("experts simulate request-*.npy --experts 384 --json", "recorded requests, side by side"),
    ),
)
