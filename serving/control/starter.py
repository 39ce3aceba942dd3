"""When a container of a real engine is ready, and whether its caches fit: by serving/startup and serving/probe."""

from collections.abc import Callable

from images.engine.errors import EngineError
from images.engine.interface import EngineImage
from serving.containers.container import Container
from serving.control.parts import Handle, NotReadyError
from serving.generations import kv
from serving.generations.generation import Generation
from serving.launch.key import VARIABLE
from serving.preflight.host import Host
from serving.preflight.result import gib
from serving.probe.api import Api
from serving.probe.ready import Readiness, ready
from serving.profiles.model import Profile, Start
from serving.startup import cache_key, shared_memory
from serving.startup.failure import StartFailedError
from serving.startup.waiting import wait_ready
from tools.cli.output import Output

_TOKEN_SECONDS = 30


class Starter:
    """Readiness of one server's containers.

    Args:
        profile: of a line, as it is now.
        host: whose cards and memory.
        out: where progress is shown.
    """

    def __init__(
        self,
        profile: Callable[[str], Profile],
        host: Host,
        out: Output,
    ) -> None:
        self._profile = profile
        self._host = host
        self._out = out

    def reasons(self, container: Handle, generation: Generation) -> list[str]:
        """Why the caches that a container has mounted must be filled first; empty where they fit, or there are none."""
        if kv.caches(generation.launch) is None:
            return []
        return cache_key.why(cache_key.read(_real(container)), self._key(generation))

    def tuned(self, container: Handle, generation: Generation) -> None:
        """Notes in the caches that this generation has filled them."""
        try:
            cache_key.write(_real(container), self._key(generation))
        except EngineError as error:
            self._out.note(f"the next start is a first one again: {error}")

    def clear(self) -> None:
        """Removes offload regions in /dev/shm that no process has, and says which are left and why."""
        clear(self._host, self._out)

    def wait(self, container: Handle, generation: Generation, first: bool) -> None:
        """Waits until a container is ready. Raises NotReadyError; KeyboardInterrupt for Ctrl-C."""
        what = f"generation {generation.number}" + (", first start" if first else "")
        api, expected = self.api(container, generation), self._expected(generation, first)
        try:
            wait_ready(_real(container), api, expected, self._out, what)
        except StartFailedError as error:
            if error.reason == "interrupted":
                raise KeyboardInterrupt from None
            raise NotReadyError(str(error)) from None

    def ready(self, container: Handle, generation: Generation) -> bool:
        """Whether a container is ready now."""
        return self.readiness(container, generation).ok

    def readiness(self, container: Handle, generation: Generation) -> Readiness:
        """Whether it is, and if not, why."""
        return ready(_real(container), self.api(container, generation), _TOKEN_SECONDS)

    def api(self, container: Handle, generation: Generation) -> Api:
        """The API of a container, with the key that it was made with, whatever the environment has by now."""
        return Api.of(generation.launch, _real(container).environment().get(VARIABLE))

    def _expected(self, generation: Generation, first: bool) -> Start:
        profile = self._profile(generation.launch.line)
        return profile.first_start if first and profile.first_start else profile.start

    def _key(self, generation: Generation) -> cache_key.CacheKey:
        image = EngineImage(generation.image.image_id, (), (), {})
        models = cache_key.gpu_models(generation.launch, self._host)
        return cache_key.CacheKey.of(generation.launch, image, models)


def clear(host: Host, out: Output) -> None:
    """Removes offload regions in /dev/shm that no process has, and says which are left and why."""
    try:
        found = shared_memory.clear(host)
    except OSError as error:
        out.note(f"{host.shared_memory} was not looked at: {error.strerror}")
        return
    for region in found:
        what = f"{host.shared_memory / region.name} ({gib(region.size)})"
        out.note(f"{what} is left: {region.why}" if region.why else f"removed {what}, which nobody had open")


def _real(container: Handle) -> Container:
    """The engine's own handle, which the sequence passes through unseen."""
    if not isinstance(container, Container):
        raise TypeError(f"{container!r}: expected a container of serving.containers")
    return container
