"""The GPUs that the self-test runs on: all that torch sees."""

from dataclasses import dataclass


class CannotTestError(Exception):
    """There is nothing to test on; one line that says what is missing and what to do."""


@dataclass(frozen=True)
class Card:
    """A GPU: torch's name of the device, the product's name, and its compute capability, such as 12.0."""

    device: str
    name: str
    capability: str

    def is_usable(self) -> bool:
        """Whether it still computes: a kernel that reads where nothing is takes its process's GPU away."""
        import torch

        try:
            return int(torch.ones(1, dtype=torch.int32, device=self.device).item()) == 1
        except RuntimeError:
            return False


def visible() -> list[Card]:
    """Every GPU that torch sees. Raises CannotTestError where it sees none."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise CannotTestError(f"torch cannot be imported: {str(error).splitlines()[0]}") from None
    if torch.version.cuda is None:
        raise CannotTestError(f"torch {torch.__version__} is built without CUDA: expected a build with it")
    if not torch.cuda.is_available():
        raise CannotTestError(
            "torch sees no GPU: expected one; give the container its GPUs (docker run --gpus all), and see what "
            "nvidia-smi says in it"
        )
    try:
        found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    except RuntimeError as error:
        raise CannotTestError(f"torch cannot use the GPU: {str(error).splitlines()[0]}") from None
    return [Card(f"cuda:{i}", str(one.name), f"{one.major}.{one.minor}") for i, one in enumerate(found)]
