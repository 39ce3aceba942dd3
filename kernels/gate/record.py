"""Compares a report of machine code with the one on record."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """Returns a report, or an empty one when there is none on record yet."""
    if not path.exists() or not path.read_text().strip():
        return {}
    return dict(json.loads(path.read_text()))


def violations(report: Mapping[str, Any]) -> list[str]:
    """What no record can make good, a line each."""
    return [
        f"{name}: {violation}"
        for name, kernel in report.get("kernels", {}).items()
        for violation in kernel["violations"]
    ]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    result: dict[str, Any] = {}
    for key, inner in value.items():
        result |= _flat(inner, f"{path}: {key}" if path else str(key))
    return result


def differences(recorded: Mapping[str, Any], measured: Mapping[str, Any]) -> list[str]:
    """Every figure that changed, with both values, a line each.

    >>> differences({"kernels": {"a": {"registers": 40}}}, {"kernels": {"a": {"registers": 48}}})
    ['kernels: a: registers: 40 on record, 48 now']
    """
    old, new = _flat(dict(recorded)), _flat(dict(measured))
    lines = []
    for path in dict.fromkeys([*old, *new]):
        before, after = old.get(path, "nothing"), new.get(path, "nothing")
        if before != after:
            lines.append(f"{path}: {before} on record, {after} now")
    return lines
