"""Which layers two images share, and how much an engine that has one must get for the other."""

from dataclasses import dataclass
from typing import Any, Literal

from images.inspect.view import LayerView, View

State = Literal["same", "changed", "added", "removed"]


@dataclass(frozen=True)
class LayerChange:
    """A layer of A, of B, or of both by name. `state` is by diff_id, and by digest where both are known."""

    name: str
    state: State
    before: LayerView | None
    after: LayerView | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        pair = {
            side: vars(layer) if layer else None for side, layer in (("from", self.before), ("to", self.after))
        }
        return {"name": self.name, "state": self.state, **pair}


@dataclass(frozen=True)
class Transfer:
    """What goes over a line. `size` in bytes, None where a layer's size is not known."""

    layers: int
    size: int | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"layers": self.layers, "bytes": self.size}


def layers(before: View, after: View) -> tuple[LayerChange, ...]:
    """The layers of `after`, lowest first, then those that only `before` has."""
    old = {layer.name: layer for layer in before.layers}
    by_content = {layer.diff_id: layer for layer in before.layers}
    changes = []
    used = set()
    for layer in after.layers:
        other = by_content.get(layer.diff_id) or old.get(layer.name)
        if other is None:
            changes.append(LayerChange(layer.name, "added", None, layer))
            continue
        used.add(other.diff_id)
        packed_anew = None not in (other.digest, layer.digest) and other.digest != layer.digest
        state: State = "changed" if other.diff_id != layer.diff_id or packed_anew else "same"
        changes.append(LayerChange(layer.name, state, other, layer))
    gone = (layer for layer in before.layers if layer.diff_id not in used)
    return (*changes, *(LayerChange(layer.name, "removed", layer, None) for layer in gone))


def pull(before: View, after: View) -> Transfer:
    """From a registry: layers that `before` lacks, configuration and manifest."""
    have = {layer.diff_id for layer in before.layers}
    missing = [layer for layer in after.layers if layer.diff_id not in have]
    documents = 0
    if after.oci_manifest is not None and missing:
        documents = int(after.oci_manifest["config"]["size"])
    return Transfer(len(missing), _size(missing, documents))


def load(before: View, after: View) -> Transfer:
    """From a layout into Docker's classic store, which knows a layer by all that is below it."""
    shared = 0
    for old, new in zip(before.layers, after.layers, strict=False):
        if old.diff_id != new.diff_id:
            break
        shared += 1
    missing = list(after.layers[shared:])
    return Transfer(len(missing), _size(missing, 0))


def _size(missing: list[LayerView], more: int) -> int | None:
    sizes = [layer.size for layer in missing]
    known = [size for size in sizes if size is not None]
    return sum(known) + more if len(known) == len(sizes) else None
