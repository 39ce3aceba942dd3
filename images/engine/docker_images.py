"""The images of Docker, or of whatever speaks its API: which there are, what is in them, pulls and tags."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions

from images.engine import docker_pull
from images.engine.errors import EngineError
from images.engine.interface import EngineImage, Progress
from images.engine.member import first_file
from images.engine.reference import may_name_image, plain, split_digest

BROKEN = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)
# Marks the containers that are made only to read a file, should one outlive its maker.
READING = "org.moet.reading"


class DockerImages:
    """A reachable engine.

    Raises:
        EngineError: from the constructor, when nothing answers at the address; from any method, when the engine
            refuses or stops answering.
    """

    def __init__(self, host: str | None) -> None:
        self.host = host or default_host()
        if self.host.startswith("ssh:"):
            forward = "ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST"
            raise EngineError(f"{self.host}: ssh is not spoken here; forward the socket ({forward}) and name that one")
        try:
            self._client = docker.DockerClient(base_url=self.host, timeout=1800)
            self._api: Any = self._client.api
            version = self._client.version()
            self._info: dict[str, Any] = self._client.info()
        except (docker.errors.DockerException, *BROKEN) as error:
            raise EngineError(f"no engine answers at {self.host} ({reason(error)})") from error
        driver = self._info.get("DriverStatus") or []
        components = {part["Name"] for part in version.get("Components", [])}
        self._podman = "Podman Engine" in components
        self._containerd = any("io.containerd.snapshotter" in value for _, value in driver)
        self.name = f"{'podman' if self._podman else 'docker'} {version['Version']}"

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    @property
    def api(self) -> Any:
        """The SDK's client of the API, a docker.APIClient; it is untyped."""
        return self._api

    @property
    def info(self) -> Mapping[str, Any]:
        """What the engine said of itself when it was reached: the API's GET /info."""
        return self._info

    def containers(self) -> list[dict[str, Any]]:
        """All containers, running or not, as the API's GET /containers/json lists them."""
        with self.asking("list its containers"):
            return list(self._api.containers(all=True))

    def images(self) -> list[EngineImage]:
        """All images, with a tag or without."""
        with self.asking("list its images"):
            listed = self._api.images()
        return [_image(entry, entry.get("Labels")) for entry in listed]

    def find(self, name: str) -> EngineImage | None:
        """The image called `name`: NAME:TAG, NAME@DIGEST, an id or the beginning of one; None where there is none."""
        found = self._inspect(name)
        return None if found is None else _image(found, (found.get("Config") or {}).get("Labels"))

    def own_id(self, image_id: str, digest: str) -> str:
        """The id here of the image with this configuration's and this manifest's digest, whether held or not."""
        return digest if self._containerd else image_id

    def layers(self, image_id: str) -> list[str]:
        """The image's diff_ids, lowest first."""
        return list(self._held(image_id)["RootFS"].get("Layers") or [])

    def config(self, image_id: str) -> dict[str, Any]:
        """The `config` part of the image's configuration: Env, Labels, Entrypoint and so on."""
        return dict(self._held(image_id).get("Config") or {})

    def history(self, image_id: str) -> list[tuple[str, str]]:
        """(created_by, comment) of the image's history, lowest layer first."""
        with self.asking(f"say how {image_id} was made"):
            return [(one["CreatedBy"], one.get("Comment") or "") for one in reversed(self._api.history(image_id))]

    def read_file(self, image_id: str, path: str) -> bytes | None:
        """The bytes of a regular file of the image, which is not run; None where there is none at `path`."""
        with self.asking(f"read {path} of {image_id}"):
            with suppress(docker.errors.APIError):
                self._api.prune_containers(filters={"label": [READING], "until": "1h"})
            made = self._api.create_container(image_id, ["-"], labels={READING: "1"}, network_disabled=True)["Id"]
            try:
                chunks, _ = self._api.get_archive(made, path)
                return first_file(iter(chunks), path)
            except docker.errors.NotFound:
                return None
            finally:
                self._api.remove_container(made, force=True, v=True)

    def pull(self, reference: str, plain_http: bool, progress: Progress) -> EngineImage:  # noqa: ARG002
        """Pull REGISTRY/NAME@DIGEST. The engine checks the bytes; the tag, if any, is left as it is.

        `plain_http` is without effect: Docker's own settings name the registries that it may speak it with.
        """
        repository, digest = split_digest(reference)
        shown = docker_pull.Pulling(progress, reference.partition("@")[0])
        progress.start(f"asking for {reference}", 0)
        try:
            for event in self._api.pull(repository, tag=digest, stream=True, decode=True):
                if "error" in event:
                    raise docker_pull.refusal(self.name, reference, str(event["error"]))
                shown.show(event)
        except docker.errors.APIError as error:
            raise docker_pull.refusal(self.name, reference, str(error.explanation or error)) from None
        except (docker.errors.DockerException, *BROKEN) as error:
            raise docker_pull.refusal(self.name, reference, reason(error)) from None
        found = self.find(reference)
        if found is None:
            raise EngineError(f"{self.name} pulled {reference} and does not have it; pull again")
        return found

    def tag(self, image_id: str, reference: str, move: bool = False) -> None:
        """Point NAME:TAG at an image; a tag that points at another one is moved only with `move`."""
        found = self.find(reference)
        if found is not None and found.image_id != image_id and not move:
            raise EngineError(f"{reference} is {found.image_id} in {self.name}, not {image_id}; a tag is not moved")
        repository, _, tag = reference.rpartition(":")
        with self.asking(f"tag {image_id} as {reference}"):
            self._api.tag(image_id, repository, tag, force=True)

    def _inspect(self, name: str) -> dict[str, Any] | None:
        if not may_name_image(name):
            return None
        with self.asking(f"look for {name}"):
            try:
                return cast(dict[str, Any], self._api.inspect_image(name))
            except docker.errors.NotFound:
                return None

    def _held(self, image_id: str) -> dict[str, Any]:
        found = self._inspect(image_id)
        if found is None:
            raise EngineError(f"{self.name} has no image {image_id}")
        return found

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turns the SDK's errors inside into EngineError; `what` says what is asked of the engine, as an infinitive."""
        try:
            yield
        except docker.errors.APIError as error:
            said = " ".join(str(error.explanation or error).split())
            raise EngineError(f"{self.name} did not {what}: {said}") from None
        except (docker.errors.DockerException, *BROKEN) as error:
            raise EngineError(f"{self.name} at {self.host} does not answer ({reason(error)})") from None


def default_host() -> str:
    """Where the user's Docker is: DOCKER_HOST, else the current context of their Docker configuration."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    context = docker.ContextAPI.get_current_context()
    return str(context.Host if context else "unix:///var/run/docker.sock")


def reason(error: BaseException) -> str:
    """The innermost cause of an error, in its own words."""
    while error.__cause__ or error.__context__:
        error = cast(BaseException, error.__cause__ or error.__context__)
    return getattr(error, "strerror", None) or " ".join(str(error).split())


def _image(found: dict[str, Any], labels: dict[str, str] | None) -> EngineImage:
    tags = [plain(tag) for tag in found.get("RepoTags") or [] if tag != "<none>:<none>"]
    digests = [plain(digest) for digest in found.get("RepoDigests") or [] if not digest.startswith("<none>@")]
    return EngineImage(found["Id"], tuple(tags), tuple(digests), dict(labels or {}))
