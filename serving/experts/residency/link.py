"""What a copy and a replay cost: the terms of a step's time that residency decides."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """The way from RAM to a card, and the step that waits for it.

    Attributes:
        bytes_a_second: of large copies, as measured on the machine in question.
        latency: seconds of one copy beyond its bytes.
        step: seconds of a step that misses nothing.
    """

    bytes_a_second: float
    latency: float
    step: float

    def __post_init__(self) -> None:
        if not (0 < self.bytes_a_second < 1e15 and 0 <= self.latency < 60 and 0 < self.step < 3600):
            raise ValueError(
                f"{self.bytes_a_second} bytes/s, {self.latency} s a copy, {self.step} s a step: expected above 0"
            )

    def copy_seconds(self, slot_bytes: int) -> float:
        """Seconds of one copy on a link that does nothing else."""
        return self.latency + slot_bytes / self.bytes_a_second
