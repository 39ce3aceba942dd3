"""Fragments of JSON values, as profiles have them: placeholders filled, one merged into another."""

import re
from collections.abc import Mapping
from typing import Any

from serving.profiles import values
from serving.profiles.model import Value

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_]+)\}")


def placeholders(fragment: Any) -> list[str]:
    """The names that stand in braces in a fragment's strings."""
    if isinstance(fragment, str):
        return _PLACEHOLDER.findall(fragment)
    if isinstance(fragment, Mapping):
        fragment = list(fragment.values())
    return [word for item in fragment for word in placeholders(item)] if isinstance(fragment, list) else []


def filled(fragment: Any, known: Mapping[str, Value | None]) -> Any:
    """A fragment with its placeholders replaced; one that is a whole string keeps the value's type."""
    if isinstance(fragment, Mapping):
        return {key: filled(item, known) for key, item in fragment.items()}
    if isinstance(fragment, list):
        return [filled(item, known) for item in fragment]
    if not isinstance(fragment, str):
        return fragment
    if whole := _PLACEHOLDER.fullmatch(fragment):
        return known[whole[1]]
    return _PLACEHOLDER.sub(lambda found: values.show(known[found[1]]), fragment)


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both objects in one; objects within are merged likewise, of anything else `second` has the last word."""
    result = dict(first)
    for key, item in second.items():
        before = result.get(key)
        both = isinstance(before, Mapping) and isinstance(item, Mapping)
        result[key] = merged(before, item) if both and isinstance(before, Mapping) else item
    return result
