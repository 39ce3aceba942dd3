"""What is another in another generation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from serving.generations import kv
from serving.generations.generation import Generation, Image
from serving.launch.launch import Launch

SCHEMA = "moet.serve-diff.v1"

Part = Literal["image", "profile", "knob", "kv", "caches", "launch"]


@dataclass(frozen=True)
class Difference:
    """One difference; None where there is no such thing before, or after."""

    part: Part
    name: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        """In one line."""
        return f"{self.name}: {_shown(self.before)} -> {_shown(self.after)}"


def differences(before: Generation, after: Generation) -> list[Difference]:
    """All differences: image, profile, knobs, KV, caches, launch."""
    return [
        *_parted("image", _image(before.image), _image(after.image)),
        *_parted("profile", {"data": before.profile[:12]}, {"data": after.profile[:12]}),
        *_parted("knob", _knobs(before), _knobs(after)),
        *_parted("kv", _kv(before), _kv(after)),
        *_parted("caches", {"folder": kv.caches(before.launch)}, {"folder": kv.caches(after.launch)}),
        *_parted("launch", _launch(before.launch), _launch(after.launch)),
    ]


def brief(before: Generation, after: Generation) -> str:
    """The image and the knobs that are others, in one line; empty where neither is."""
    found = _parted("image", {"image": before.image.name}, {"image": after.image.name})
    found += _parted("knob", _knobs(before), _knobs(after))
    return ", ".join(one.words for one in found)


def document(name: str, before: Generation, after: Generation) -> dict[str, Any]:
    """For JSON."""
    found = [vars(one) for one in differences(before, after)]
    return {"schema": SCHEMA, "server": name, "a": before.number, "b": after.number, "differences": found}


def _parted(part: Part, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> list[Difference]:
    pairs = [(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]
    return [Difference(part, name, one, other) for name, one, other in pairs if one != other]


def _image(image: Image) -> dict[str, str | None]:
    steps = {f"step {number}": name for number, _, name in _steps(image)}
    asked = image.asked if image.asked != image.name else None
    named = {"name": image.name, "asked for": asked, "id": image.image_id, "digest": image.digest, "base": image.base}
    return {**named, "manifest": image.manifest and image.manifest[:12], **steps}


def _steps(image: Image) -> list[tuple[str, str, str]]:
    return [one.partition(":") for one in (image.steps or "").split(",") if one]


def _knobs(generation: Generation) -> dict[str, str | None]:
    """All but the image's, which is a part of its own."""
    return {knob.name: knob.value or None for knob in generation.knobs if knob.value != generation.image.asked}


def _kv(generation: Generation) -> dict[str, str | None]:
    found = kv.format_of(generation.launch, generation.image.base)
    disks = " ".join(one.host for one in kv.disks(generation.launch))
    gib = kv.offload_gib(generation.launch)
    return {
        "record": found.record,
        "indexer": found.indexer,
        "base": found.base,
        "offload": f"{gib:g} GiB" if gib else None,
        "disk": disks or None,
    }


def _launch(launch: Launch) -> dict[str, str | None]:
    plain = {
        "GPUs": ",".join(launch.gpus),
        "address": f"{launch.bind} port {launch.port}",
        "key": None if launch.key is None else launch.key.file or "environment",
        "docker": " ".join(launch.docker_options) or None,
        "shared memory": f"{launch.shared_memory_gib:g} GiB",
    }
    mounts = {f"mount {one.target}": f"{one.source}{'' if one.write else ' (read-only)'}" for one in launch.binds}
    limits = {f"ulimit {name}": str(value) for name, value in launch.ulimits.items()}
    return {**plain, **mounts, **limits, **launch.environment, **dict(_arguments(launch))}


def _arguments(launch: Launch) -> Iterator[tuple[str, str]]:
    for number, word in enumerate(launch.arguments):
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            yield flag, value if equals else "given"
        else:
            yield f"argument {number}", word


def _shown(text: str | None) -> str:
    return "not set" if text is None else text
