"""The images of podman's storage, through its command: which there are, what is in them, pulls and tags."""

import json
import shutil
import subprocess
from typing import Any, cast

from images.engine.docker_images import READING
from images.engine.docker_pull import refusal
from images.engine.errors import EngineError
from images.engine.interface import EngineImage, Progress
from images.engine.member import first_file
from images.engine.reference import may_name_image, plain, split_digest

_CHUNK = 1 << 20


class PodmanImages:
    """The podman on PATH, with the storage that the user's configuration (or CONTAINERS_STORAGE_CONF) names.

    Raises:
        EngineError: from the constructor, when podman is missing or does not work; from any method, when it refuses.
    """

    def __init__(self) -> None:
        if not shutil.which("podman"):
            raise EngineError("no podman on PATH")
        done = podman("version", "--format", "json")
        if done.returncode:
            raise EngineError(f"podman does not work here ({last(done.stderr)})")
        self.name = f"podman {json.loads(done.stdout)['Client']['Version']}"

    def close(self) -> None:
        """Nothing is held open."""

    def images(self) -> list[EngineImage]:
        """All images, with a tag or without."""
        names = podman("images", "--quiet", "--no-trunc").stdout.split()
        return [_image(found) for found in inspect(*dict.fromkeys(names))] if names else []

    def find(self, name: str) -> EngineImage | None:
        """The image called `name`: NAME:TAG, NAME@DIGEST, an id or the beginning of one; None where there is none."""
        found = inspect(name)
        return _image(found[0]) if found else None

    def own_id(self, image_id: str, digest: str) -> str:  # noqa: ARG002
        """The id here of the image with this configuration's and this manifest's digest, whether held or not."""
        return image_id

    def layers(self, image_id: str) -> list[str]:
        """The image's diff_ids, lowest first."""
        return list(self._held(image_id)["RootFS"].get("Layers") or [])

    def config(self, image_id: str) -> dict[str, Any]:
        """The `config` part of the image's configuration: Env, Labels, Entrypoint and so on."""
        return dict(self._held(image_id).get("Config") or {})

    def history(self, image_id: str) -> list[tuple[str, str]]:
        """(created_by, comment) of the image's history, lowest layer first."""
        entries = self._held(image_id).get("History") or []
        return [(one.get("created_by") or "", one.get("comment") or "") for one in entries]

    def read_file(self, image_id: str, path: str) -> bytes | None:
        """The bytes of a regular file of the image, which is not run; None where there is none at `path`."""
        self._held(image_id)
        podman("container", "prune", "--force", "--filter", "until=1h", "--filter", f"label={READING}")
        done = podman("create", "--pull=never", "--network=none", f"--label={READING}=1", image_id, "-")
        if done.returncode:
            raise EngineError(f"podman did not read {path} of {image_id}: {last(done.stderr)}")
        made = done.stdout.strip()
        try:
            return _copy(made, path)
        finally:
            podman("rm", "--force", "--volumes", made)

    def pull(self, reference: str, plain_http: bool, progress: Progress) -> EngineImage:
        """Pull REGISTRY/NAME@DIGEST. podman checks the bytes; the tag, if any, is left as it is."""
        split_digest(reference)
        progress.start(f"pulling {reference.partition('@')[0]}", 0)
        done = podman("pull", "--quiet", *(["--tls-verify=false"] if plain_http else []), reference)
        if done.returncode:
            raise refusal(self.name, reference, done.stderr)
        found = self.find(reference)
        if found is None:
            raise EngineError(f"{self.name} pulled {reference} and does not have it; pull again")
        return found

    def tag(self, image_id: str, reference: str, move: bool = False) -> None:
        """Point NAME:TAG at an image; a tag that points at another one is moved only with `move`."""
        found = self.find(reference)
        if found is not None and found.image_id != image_id and not move:
            raise EngineError(f"{reference} is {found.image_id} in {self.name}, not {image_id}; a tag is not moved")
        check(podman("tag", image_id.removeprefix("sha256:"), reference))

    def _held(self, image_id: str) -> dict[str, Any]:
        found = inspect(image_id)
        if not found:
            raise EngineError(f"{self.name} has no image {image_id}")
        return found[0]


def podman(*arguments: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `podman ARGUMENTS`, in `folder` where one is given."""
    return subprocess.run(
        ["podman", *arguments], cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )


def inspect(*names: str) -> list[dict[str, Any]]:
    """What podman says of images; nothing where one of `names` is no image of its storage.

    Raises:
        EngineError: podman failed for another reason.
    """
    if not all(map(may_name_image, names)):
        return []
    done = podman("image", "inspect", *(name.removeprefix("sha256:") for name in names))
    if done.returncode == 0:
        return cast(list[dict[str, Any]], json.loads(done.stdout))
    if "image not known" in done.stderr or "no such image" in done.stderr or "unable to inspect" in done.stderr:
        return []
    raise EngineError(f"podman does not say what it has: {last(done.stderr)}")


def check(done: subprocess.CompletedProcess[str]) -> None:
    """Raises EngineError where podman failed, which is explained."""
    if done.returncode == 0:
        return
    if "no space left on device" in done.stderr:
        root = podman("info", "--format", "{{.Store.GraphRoot}}").stdout.strip()
        raise EngineError(f"podman has no space left under {root}; free some there and load again")
    raise EngineError(f"podman did not take the image: {last(done.stderr)}")


def last(text: str) -> str:
    """The last line of a program's message."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def _copy(container: str, path: str) -> bytes | None:
    with subprocess.Popen(
        ["podman", "cp", f"{container}:{path}", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout and running.stderr
        stream = running.stdout
        try:
            head = stream.read(_CHUNK)
            return first_file(iter([head, *iter(lambda: stream.read(_CHUNK), b"")]), path) if head else None
        finally:
            running.kill()


def _image(found: dict[str, Any]) -> EngineImage:
    tags = [plain(tag) for tag in found.get("RepoTags") or []]
    digests = [plain(digest) for digest in found.get("RepoDigests") or []]
    return EngineImage(f"sha256:{found['Id']}", tuple(tags), tuple(digests), dict(found.get("Labels") or {}))
