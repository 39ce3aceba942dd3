"""Checks a pack: checksums of all records, and some experts against the checkpoint, bit for bit."""

import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.experts.storage.reader import Container, Expect
from serving.experts.storage.refusal import DamagedError
from tools.cli.errors import UserError
from tools.cli.output import Bar, Output
from tools.experts import reference
from tools.experts.checkpoint.checkpoint import MATRICES, Checkpoint, identity
from tools.experts.quantize import facts, numpy_form
from tools.experts.quantize.packs import Pack, differences
from tools.experts.quantize.run import BASE_KIND

TOKENS = 4

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """An expert that was quantized again.

    Attributes:
        layer: of the expert.
        expert: its number.
        differences: where its record is another, in words.
        weights: relative error of its weights against the checkpoint's: root mean square; None where one of the two
            cannot be read.
        outputs: the same of its outputs for TOKENS random inputs.
    """

    layer: int
    expert: int
    differences: tuple[str, ...]
    weights: float | None = None
    outputs: float | None = None


@dataclass(frozen=True)
class Verified:
    """What was found.

    Attributes:
        pack: its folder.
        bits: of the values that were compared: 4 with a delta, else 2.
        records: that were read.
        missing: that are not in it.
        damaged: records that are, in words.
        compared: experts.
    """

    pack: str
    bits: int
    records: int
    missing: int
    damaged: tuple[str, ...]
    compared: tuple[Compared, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged and not any(one.differences for one in self.compared)


def verify(path: Path, delta: Path | None, checkpoint: Path | None, check: int, seed: int, bar: Bar) -> Verified:
    """Checks the pack in the folder `path`, its delta, and `check` (0: all) experts against the checkpoint.

    Raises UserError for what cannot be opened, and for a checkpoint of another identity.
    """
    damaged: list[str] = []
    records = missing = 0
    compared: list[Compared] = []
    with Pack(path, delta) as pack:
        containers = [pack.base] + ([pack.delta] if pack.delta is not None else [])
        bar.start("checksums", sum(len(one.present()) * one.header.slot_bytes for one in containers))
        for one in containers:
            records += len(one.present())
            missing += one.header.total - len(one.present())
            damaged += _damaged(one, bar)
        if checkpoint is not None:
            # Says what differs, as every reader of a pack would.
            Container.open(path, Expect(BASE_KIND, identity(checkpoint), facts.QUANTIZER_ABI)).close()
            with Checkpoint.open(checkpoint, pack.base.header.layers) as found:
                keys = [key for key in pack.base.present() if all(key in one for one in containers)]
                chosen = keys if not check else sorted(random.Random(seed).sample(keys, min(check, len(keys))))
                bar.start("compare", len(chosen))
                for layer, expert in chosen:
                    compared.append(_compare(pack, found, layer, expert))
                    bar.advance(1)
    return Verified(str(path), 2 if delta is None else 4, records, missing, tuple(damaged), tuple(compared))


def _damaged(container: Container, bar: Bar) -> list[str]:
    wrong = []
    buffer = bytearray(container.header.slot_bytes)
    for layer, expert in container.present():
        try:
            container.read(layer, expert, buffer)
        except DamagedError as error:
            wrong.append(str(error))
        bar.advance(container.header.slot_bytes)
    return wrong


def _compare(pack: Pack, checkpoint: Checkpoint, layer: int, expert: int) -> Compared:
    try:
        differing = differences(pack, checkpoint, layer, expert)
        own = pack.values(layer, expert)
    except DamagedError:
        return Compared(layer, expert, ("damaged",))
    except (UserError, ValueError) as error:
        # Of the checkpoint's own bytes, or of a delta that belongs to another pack.
        return Compared(layer, expert, (str(error),))
    stated = {matrix: numpy_form.dequantize(checkpoint.read(layer, expert, matrix)) for matrix in MATRICES}
    weights = _relative([own[matrix] for matrix in MATRICES], [stated[matrix] for matrix in MATRICES])
    x = np.random.default_rng([layer, expert]).normal(size=(TOKENS, pack.hidden))
    outputs = [reference.expert(x, one["w1"], one["w3"], one["w2"], checkpoint.swiglu_limit) for one in (own, stated)]
    return Compared(layer, expert, tuple(differing), weights, _relative([outputs[0]], [outputs[1]]))


def _relative(found: list[Doubles], stated: list[Doubles]) -> float:
    power = sum(float((one**2).sum()) for one in stated)
    error = sum(float(((a - b) ** 2).sum()) for a, b in zip(found, stated, strict=True))
    return float(np.sqrt(error / power)) if power else 0.0


def _shown(error: float | None) -> str:
    return "" if error is None else f"{error:.4f}"


def show(found: Verified, out: Output) -> None:
    """Prints what was found."""
    for line in found.damaged:
        out.line(line, style="red")
    if found.compared:
        rows = [
            (
                f"{one.layer}:{one.expert}",
                "; ".join(one.differences) or "the same bits",
                _shown(one.weights),
                _shown(one.outputs),
            )
            for one in found.compared
        ]
        out.table(("expert", "record", f">error of weights in {found.bits} bits", ">of outputs"), rows)
    absent = f", {found.missing:,} are not in it" if found.missing else ""
    verdict = "sound" if found.sound else "NOT sound"
    out.line(f"{found.pack}: {verdict}; {found.records:,} records read{absent}, {len(found.compared):,} compared")


def document(found: Verified) -> dict[str, Any]:
    """As JSON has it."""
    return {"schema": "moet.experts.verify.v1", **asdict(found), "sound": found.sound}
