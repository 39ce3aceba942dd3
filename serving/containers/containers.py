"""The containers of one engine: made of launches, found by name and label."""

from collections.abc import Mapping

import docker.errors

from images.engine.docker_images import DockerImages
from images.engine.interface import EngineImage
from serving.containers import body
from serving.containers.container import Container
from serving.launch.launch import Launch


class Containers:
    """A reachable Docker engine.

    Raises:
        EngineError: from the constructor, when nothing answers at `host` (default: DOCKER_HOST, else the context of
            the user's Docker configuration); from any method, when the engine refuses or stops answering.
    """

    def __init__(self, host: str | None = None) -> None:
        self._engine = DockerImages(host)
        self.name = self._engine.name

    @property
    def host(self) -> str:
        """The engine's address."""
        return self._engine.host

    def close(self) -> None:
        """Give the connection back."""
        self._engine.close()

    def image(self, name: str) -> EngineImage | None:
        """The image called `name`: NAME:TAG, NAME@DIGEST or an id; None where the engine does not have it."""
        return self._engine.find(name)

    def check(self, launch: Launch) -> None:
        """Raises the UserErrors of create() that do not need the engine, but for the key's."""
        body.check(launch)

    def create(self, launch: Launch, name: str, labels: Mapping[str, str], key: str | None) -> Container:
        """Makes a container of a launch, as `docker create` would, and does not start it.

        Args:
            launch: what is served.
            name: of the container; no other may have it.
            labels: beside the image's.
            key: the API key, where the launch takes it from the environment.

        Raises UserError for docker options of the launch that are not taken here, and for a key that is missing.
        """
        words = body.create(launch, labels, key)
        with self._engine.asking(f"create container {name} of {launch.image}"):
            return Container(self._engine, self._engine.api.create_container(name=name, **words)["Id"])

    def find(self, name: str) -> Container | None:
        """The container that is called `name`."""
        with self._engine.asking(f"look for container {name}"):
            try:
                found = self._engine.api.inspect_container(name)
            except docker.errors.NotFound:
                return None
        # An id, or the beginning of one, names a container too.
        return Container(self._engine, found["Id"]) if found["Name"] == f"/{name}" else None

    def labelled(self, labels: Mapping[str, str]) -> list[Container]:
        """The containers, running or not, that have all of these labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        with self._engine.asking("list its containers"):
            listed = self._engine.api.containers(all=True, filters={"label": wanted})
        return [Container(self._engine, found["Id"]) for found in listed]
