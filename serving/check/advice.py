"""What is usual when a figure is low: first what was seen, then what cannot be seen from outside."""

from collections.abc import Iterator
from dataclasses import dataclass

from images.manifest import model
from serving.check import cards
from serving.check.cards import Watch
from serving.check.counters import Counted
from serving.check.target import Target
from serving.launch.launch import Launch
from serving.profiles import load
from tools.cli.errors import UserError

_P2P = "NCCL_P2P_LEVEL"


@dataclass(frozen=True)
class Evidence:
    """What was seen while something was measured.

    Attributes:
        target: the server.
        watch: cards and CPU.
        counted: the engine's counters; None where there are none.
        own: tokens that the check itself had generated in that time.
    """

    target: Target
    watch: Watch
    counted: Counted | None
    own: int

    @property
    def others(self) -> int:
        """Tokens that were generated for others meanwhile."""
        return max(0, self.counted.generated - self.own) if self.counted else 0


def why_slow(evidence: Evidence, speculation: bool) -> list[str]:
    """What makes a server slow here; `speculation` asks about drafts too, which prompts do not have."""
    found = [*_load(evidence), *cards.seen(evidence.watch)]
    if evidence.target.launch:
        found += _launched(evidence.target.launch, speculation)
        found += _steps(evidence.target)
    else:
        found += _usual(speculation and not (evidence.counted and evidence.counted.drafts))
    return found or ["nothing that is usual was seen: docs/operate.md, When it is slow"]


def few_accepted(evidence: Evidence) -> list[str]:
    """Where steps are as fast as they should be and tokens are not."""
    if evidence.counted is None:
        return ["/metrics has no counters: whether drafts are accepted is not known (--disable-log-stats hides them)"]
    if not evidence.counted.drafts:
        return ["no drafts were verified: without speculation a step gives each stream one token: SPEC_TOKENS"]
    each = evidence.counted.accepted / evidence.counted.drafts
    return [
        f"{each:.2f} drafted tokens were accepted in a step: drafts fit other texts better or worse; SPEC_TOKENS sets "
        "how many are tried, and a checkpoint without its drafter's own weights accepts few"
    ]


def _load(evidence: Evidence) -> Iterator[str]:
    if evidence.others:
        yield f"{evidence.others:,} tokens were generated for others meanwhile: check a server that nobody uses"
    if evidence.counted and evidence.counted.preempted:
        yield (
            f"{evidence.counted.preempted} requests were put off for want of KV blocks: a higher GPU_MEM_UTIL, "
            "or a lower MAX_NUM_SEQS"
        )


def _launched(launch: Launch, speculation: bool) -> Iterator[str]:
    level = launch.environment.get(_P2P)
    if len(launch.gpus) > 1 and level != "SYS":
        yield (
            f"{_P2P} is {level or 'not set'}: NCCL may not let the cards read each other; SYS does (published by "
            "others: 18-30 us became 11-13 us for each all-reduce); moet serve preflight times it"
        )
    flags = [word.partition("=")[0] for word in launch.arguments]
    if speculation and "--speculative-config" not in flags:
        yield "there is no speculation: SPEC_TOKENS is 0"
    if "--enforce-eager" in flags:
        yield "--enforce-eager is set: each step launches every kernel by itself; leave it out"
    off = [name for name in _presets(launch.line) if launch.environment.get(name, "0") == "0"]
    if off:
        yield f"switches are off that SERVED=1 sets (none of them ran on such cards yet): {', '.join(off)}"


def _steps(target: Target) -> Iterator[str]:
    off = [f"{step.number} {step.name}" for step in target.attested.steps if not step.live] if target.attested else []
    if off:
        yield f"steps of the image that are off: {', '.join(off)}"


def _presets(line: str) -> list[str]:
    """The switches that the profile's SERVED knob sets."""
    try:
        served = load.load(line).knobs.get("SERVED")
    except UserError:
        return []
    return [name for name in served.presets if name.startswith(model.SWITCH_PREFIX)] if served else []


def _usual(speculation: bool) -> Iterator[str]:
    yield f"{_P2P}: SYS lets cards read each other where a virtual machine shows PHB and NCCL would not"
    yield "switches of the image: its log's first lines say which steps are off"
    if speculation:
        yield "speculation: without --speculative-config, a step gives each stream one token"
