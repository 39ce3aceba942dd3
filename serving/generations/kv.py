"""What a server does with KV blocks and compiled code outside its container, read from its launch."""

import json
import posixpath
from dataclasses import dataclass
from typing import Any

from serving.launch.launch import Bind, Launch

CACHES = "/var/lib/moet"


@dataclass(frozen=True)
class Disk:
    """A disk tier: `root` is its folder in the container, `host` the same folder (or VOLUME/...) on the host."""

    root: str
    host: str


@dataclass(frozen=True)
class Format:
    """What decides whether KV blocks on disk can be read.

    Attributes:
        record: format of a token's record, vLLM's --kv-cache-dtype.
        indexer: format of the indexer's keys; None where the launch leaves it to vLLM.
        base: the upstream project of the image: name, version, commit; None where its labels do not say.
        model: the checkpoint's folder on the host.
    """

    record: str
    indexer: str | None
    base: str | None
    model: str

    def differs(self, other: "Format") -> list[str]:
        """In words, what is another in `other`."""
        names = {"record": "record", "indexer": "indexer's keys", "base": "base", "model": "model"}
        pairs = [(word, getattr(self, name), getattr(other, name)) for name, word in names.items()]
        changed = [(word, mine, theirs) for word, mine, theirs in pairs if mine != theirs]
        return [f"{word} {theirs or 'not set'}, not {mine or 'not set'}" for word, mine, theirs in changed]


def format_of(launch: Launch, base: str | None) -> Format:
    """The format of the KV blocks that a server of an image with this base writes."""
    indexer = _json(launch, "--attention-config").get("indexer_kv_dtype")
    mounted = {bind.target: bind.source for bind in launch.binds}
    model = launch.arguments[1] if len(launch.arguments) > 1 else ""
    return Format(
        record=_value(launch, "--kv-cache-dtype") or "auto",
        indexer=indexer if isinstance(indexer, str) else None,
        base=base,
        model=mounted.get(model, model),
    )


def disks(launch: Launch) -> list[Disk]:
    """The disk tiers of a server."""
    return [Disk(root, _on_host(launch, root)) for root in _roots(launch)]


def moved(launch: Launch, root: str, to: str) -> tuple[str, ...]:
    """The launch's arguments with the disk tier at `root` at `to`, both in the container."""
    config = _json(launch, _TRANSFER)
    for tier in _tiers(config):
        if tier.get("root_dir") == root:
            tier["root_dir"] = to
    text = f"{_TRANSFER}={json.dumps(config, separators=(',', ':'), ensure_ascii=False)}"
    return tuple(text if word.startswith(f"{_TRANSFER}=") else word for word in launch.arguments)


def caches(launch: Launch) -> str | None:
    """The folder or volume of what is compiled and tuned at run time; None for none."""
    return next((bind.source for bind in launch.binds if bind.target == CACHES), None)


def offload_gib(launch: Launch) -> float:
    """Host memory for KV blocks, in GiB; 0 for none."""
    return float(_value(launch, "--kv-offloading-size") or 0)


def document(launch: Launch) -> dict[str, Any]:
    """For JSON."""
    found = format_of(launch, None)
    return {
        "record": found.record,
        "indexer": found.indexer,
        "offload_gib": offload_gib(launch),
        "disks": [one.host for one in disks(launch)],
    }


_TRANSFER = "--kv-transfer-config"


def _value(launch: Launch, flag: str) -> str | None:
    found = [word.removeprefix(f"{flag}=") for word in launch.arguments if word.startswith(f"{flag}=")]
    return found[0] if found else None


def _json(launch: Launch, flag: str) -> dict[str, Any]:
    try:
        found = json.loads(_value(launch, flag) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _tiers(config: dict[str, Any]) -> list[dict[str, Any]]:
    extra = config.get("kv_connector_extra_config")
    tiers = extra.get("secondary_tiers") if isinstance(extra, dict) else None
    return [tier for tier in tiers if isinstance(tier, dict)] if isinstance(tiers, list) else []


def _roots(launch: Launch) -> list[str]:
    roots = [tier.get("root_dir") for tier in _tiers(_json(launch, _TRANSFER))]
    return [root for root in roots if isinstance(root, str)]


def _on_host(launch: Launch, path: str) -> str:
    path = posixpath.normpath(path)
    around = [bind for bind in launch.binds if path == bind.target or path.startswith(f"{bind.target}/")]
    if not around:
        return path
    inner: Bind = max(around, key=lambda bind: len(bind.target))
    return posixpath.normpath(f"{inner.source}/{path[len(inner.target):]}")
