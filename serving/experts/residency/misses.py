"""Counts of what was missed and what it cost. They only grow."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .slots import Cells


@dataclass
class Misses:
    """Counts since a start, owned by one driver.

    Attributes:
        layers: MoE layers.
        experts: routed experts of a layer.
        steps: steps that are done; a step that was split counts once for each part.
        clean: those without any miss.
        asked: cells that steps asked for, each once a step, as its last pass routed.
        missed: those of them that were not resident when the step began.
        by_layer: int64 [layers], `missed` by layer.
        zeros: contributions of zero that passes added for want of an expert; all of them in passes that were replayed.
        replays: whole passes that were repeated.
        by_layer_passes: steps that had to be computed layer by layer.
        splits: steps whose rows had to be split.
    """

    layers: int
    experts: int
    steps: int = 0
    clean: int = 0
    asked: int = 0
    missed: int = 0
    by_layer: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    zeros: int = 0
    replays: int = 0
    by_layer_passes: int = 0
    splits: int = 0

    def __post_init__(self) -> None:
        if not self.by_layer.size:
            self.by_layer = np.zeros(self.layers, np.int64)

    def pass_missed(self, contributions: int) -> None:
        """A pass added zero for `contributions` pairs of a row and an expert. Raises ValueError below 0."""
        if contributions < 0:
            raise ValueError(f"{contributions} contributions: expected 0 or more")
        self.zeros += contributions

    def step(self, asked: Cells, missed: Cells, replays: int, by_layer: bool) -> None:
        """A step is done: `asked` by its last pass, of which `missed` were not resident when it began."""
        self.steps += 1
        self.clean += missed.size == 0 and replays == 0 and not by_layer
        self.asked += int(asked.size)
        self.missed += int(missed.size)
        self.by_layer += np.bincount(missed // self.experts, minlength=self.layers)
        self.replays += replays
        self.by_layer_passes += by_layer

    def split(self, replays: int) -> None:
        """A step was split after `replays` replays."""
        self.splits += 1
        self.replays += replays
