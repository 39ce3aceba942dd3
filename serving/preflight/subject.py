"""The server that is about to be started."""

from dataclasses import dataclass
from pathlib import Path

from serving.launch.launch import Launch
from serving.launch.settings import Setting, Settings
from serving.profiles.model import Needs, Role


@dataclass(frozen=True)
class Subject:
    """A server: the launch, the settings that it comes from, and whether its image is a known release's."""

    launch: Launch
    settings: Settings
    released: bool

    @property
    def needs(self) -> Needs:
        """What the line needs of model and host."""
        return self.settings.profile.needs

    @property
    def model(self) -> Path:
        """The checkpoint's folder."""
        return Path(str(self.settings.of("model").value))

    @property
    def offload_gib(self) -> float:
        """Host memory for KV blocks, in GiB; 0 for none."""
        value = self.settings.of("offload").value
        return float(value) if isinstance(value, int | float) else 0.0

    def knob(self, role: Role) -> str:
        """The name of the knob that plays a part."""
        return self.settings.profile.by_role(role).name

    def of_flag(self, flag: str) -> Setting | None:
        """The setting of the knob that a flag of `vllm serve` has its value from; None where the line has none."""
        return next((one for one in self.settings.by_name.values() if one.knob.flag == flag), None)
