"""A value that a JSON schema allows: what tool calls and JSON answers are made of."""

import re
from typing import Any

_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+|\d+")


def value(schema: dict[str, Any], text: str, where: dict[str, Any] | None = None) -> Any:
    """A value for `schema` (types, enum, const, properties, items, $ref and bounds); strings are words of `text`."""
    where = schema if where is None else where
    if "$ref" in schema:
        target: Any = where
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return value(target, text, where)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        named = [one for one in schema["enum"] if str(one).lower() in text.lower()]
        return (named or schema["enum"])[0]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return value(schema[union][0], text, where)
    return _of_kind(schema, text, where)


def _of_kind(schema: dict[str, Any], text: str, where: dict[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: value(one, text, where) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [value(schema.get("items", {}), text, where)] * max(1, int(schema.get("minItems", 1)))
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        found = next((int(one) for one in _CAPITAL.findall(text) if one.isdigit()), low)
        return found if low <= found <= schema.get("maximum", found) else low
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    word = next((one for one in _CAPITAL.findall(text) if not one.isdigit()), "word")
    return word.ljust(schema.get("minLength", 0), "x")
