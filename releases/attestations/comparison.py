"""Whether two statements say the same of an image, whichever version of a library wrote them."""

from typing import Any

from releases.attestations import sbom
from releases.attestations.statement import Statement


def difference(found: Statement, wanted: Statement) -> str | None:
    """The first thing, in words, that `found` says otherwise than `wanted`; None where both say the same."""
    read = _bill if found.predicate_type == sbom.PREDICATE else _plain
    left, right = read(found.predicate), read(wanted.predicate)
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            return f"{key} is {_shown(left.get(key))}, {_shown(right.get(key))} was expected"
    return None


def _bill(predicate: dict[str, Any]) -> dict[str, Any]:
    """Of a CycloneDX document: what it is about and its components with their hashes."""
    try:
        metadata = predicate["metadata"]["component"]
        about = {f"component {one['bom-ref']}": _facts(one) for one in predicate.get("components", [])}
        return {**about, "image": _facts(metadata), "serialNumber": predicate["serialNumber"]}
    except (KeyError, TypeError, AttributeError):
        return {"document": "none that describes an image"}


def _facts(component: dict[str, Any]) -> dict[str, Any]:
    hashes = sorted((one["alg"], one["content"]) for one in component.get("hashes", []))
    return {**{key: component.get(key) for key in ("name", "version", "purl")}, "hashes": hashes}


def _plain(value: Any, where: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        inner = ((f"{where}.{key}" if where else str(key), item) for key, item in value.items())
    elif isinstance(value, list):
        inner = ((f"{where}[{index}]", item) for index, item in enumerate(value))
    else:
        return {where: value}
    found: dict[str, Any] = {}
    for name, item in inner:
        found |= _plain(item, name)
    return found


def _shown(value: Any) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 100 else text[:97] + "..."
