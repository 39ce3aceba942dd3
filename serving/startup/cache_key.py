"""What the caches below /var/lib/moet were filled for, kept in a file among them.

vLLM 0.33.0 names its caches by a hash of its configuration (vllm/config/vllm.py:460-576; for FlashInfer's tuning
model_executor/warmup/flashinfer_autotune_cache.py:35), so that several stand side by side, and a new one is filled from
nothing, however full the folder is. What goes into the hash is known here by where it comes from: the image, the GPUs'
models, the arguments and the variables, but for what ignored.py names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from images.engine.interface import EngineImage
from images.inspect.text import plain
from images.manifest import model
from serving.launch.launch import Launch
from serving.preflight.access import UID
from serving.preflight.host import Host
from serving.preflight.nvidia_smi import DriverError, NoDriverError, gpus
from serving.startup import ignored

PATH = "/var/lib/moet/.moet-cache.json"

Schema = Literal["moet.cache.v1"]
_SCHEMA: Schema = "moet.cache.v1"
# Configurations that a folder is remembered for, the newest last.
_MOST = 16
_NOT_SET = "not set"


class Files(Protocol):
    """A container, running or not, whose files can be read and written; its mounts count."""

    def read_file(self, path: str) -> bytes | None:
        """The bytes of a file; None where there is none."""

    def write_file(self, path: str, data: bytes, uid: int, mode: int) -> None:
        """Puts a file."""


@dataclass(frozen=True)
class CacheKey:
    """What decides whether a cache fits.

    Attributes:
        image: the engine's id of the image.
        name: the image's, for people.
        gpus: models, sorted; empty where nobody knows them.
        settings: flags of `vllm serve` and variables of the container, to their values.
    """

    image: str
    name: str
    gpus: tuple[str, ...]
    settings: dict[str, str]

    @classmethod
    def of(cls, launch: Launch, image: EngineImage, gpus: Sequence[str]) -> Self:
        """The key of a launch with the image that the engine has, on GPUs of these models."""
        variables = {name: value for name, value in launch.environment.items() if name not in ignored.VARIABLES}
        return cls(image.image_id, launch.image, tuple(sorted(gpus)), {**_flags(launch.arguments), **variables})


@dataclass(frozen=True)
class _Content:
    schema: Schema
    filled: tuple[CacheKey, ...]


def gpu_models(launch: Launch, host: Host) -> tuple[str, ...]:
    """The models of the GPUs that a launch is given; empty where the driver does not tell all of them."""
    try:
        named = {name: gpu.name for gpu in gpus(host) for name in (gpu.index, gpu.uuid)}
    except (NoDriverError, DriverError):
        return ()
    found = [named[gpu] for gpu in launch.gpus if gpu in named]
    return tuple(sorted(found)) if len(found) == len(launch.gpus) else ()


def read(container: Files) -> tuple[CacheKey, ...]:
    """What the caches that a container has mounted were filled for; empty where nobody wrote it, or it is damaged."""
    data = container.read_file(PATH)
    if data is None:
        return ()
    try:
        return model.decode(_Content, model.loads(data)).filled
    except model.DataError:
        return ()


def write(container: Files, key: CacheKey) -> None:
    """Notes in the caches of a container that a server with this key has filled them, which became ready."""
    others = [one for one in read(container) if differs(one, key)]
    container.write_file(PATH, model.dumps(_Content(_SCHEMA, (*others[-_MOST + 1 :], key))), UID, 0o644)


def differs(old: CacheKey, new: CacheKey) -> list[str]:
    """Each difference that makes caches of `old` useless to `new`, on one line; none where they fit."""
    found = []
    if old.image != new.image:
        found.append(f"image: {_image(old)} -> {_image(new)}")
    if old.gpus != new.gpus:
        found.append(f"GPUs: {_gpus(old.gpus)} -> {_gpus(new.gpus)}")
    for name in sorted({*old.settings, *new.settings}):
        before, after = old.settings.get(name, _NOT_SET), new.settings.get(name, _NOT_SET)
        if before != after:
            found.append(f"{name}: {before or 'on'} -> {after or 'on'}")
    return [plain(line) for line in found]


def why(filled: Sequence[CacheKey], new: CacheKey) -> list[str]:
    """Why a start with the key `new` is a first one, a line each: empty where caches that were filled fit it.

    Of several configurations that the caches were filled for, the nearest is named.
    """
    if not filled:
        return ["CACHE_DIR was not filled by a server that became ready"]
    return min((differs(old, new) for old in reversed(filled)), key=len)


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """The flags after `serve MODEL` by name; words that are no flags belong to the one before."""
    found: dict[str, str] = {}
    flag = ""
    for word in arguments[2:]:
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            found[flag] = value
        elif flag:
            found[flag] = f"{found[flag]} {word}".strip()
    return {name: value for name, value in found.items() if name not in ignored.FLAGS}


def _image(key: CacheKey) -> str:
    return f"{key.name} ({key.image.removeprefix('sha256:')[:12]})"


def _gpus(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or "unknown"
