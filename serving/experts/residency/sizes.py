"""Sizes of pools as people write them: `25%`, `96`, `24GiB`."""

import json
from pathlib import Path

from tools.cli.errors import UserError

DEFAULT = ("12.5%", "25%", "37.5%", "50%", "62.5%", "75%", "87.5%", "100%")
_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 10**9, "MB": 10**6}


def quotas(text: str, layers: int, experts: int, slot_bytes: int, shared: bool) -> tuple[int, ...]:
    """Quotas for a size: a share of all experts, slots a layer, or bytes of all slots; rounded down to whole slots.

    Each layer gets as many, and those that are over go to the first layers; if `shared`, all go to one quota. Raises
    UserError.
    """
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "%" if text.endswith("%") else "")
    try:
        number = float(text.removesuffix(unit))
    except ValueError:
        number = -1.0
    if not 0 < number < 1e15:
        raise UserError(
            f"pool {text!r}: expected a share such as 25%, slots a layer such as 96, or bytes such as 24GiB"
        )
    if unit == "%":
        total = number / 100 * layers * experts
    else:
        total = number * _UNITS[unit] / slot_bytes if unit else number * layers
    slots = int(total + 1e-9)
    if (unit == "%" and number > 100) or (unit == "" and number > experts):
        raise UserError(f"pool {text!r}: more than {experts} experts a layer")
    slots = min(slots, layers * experts)
    if shared:
        return (slots,)
    each, over = divmod(slots, layers)
    return tuple(each + (layer < over) for layer in range(layers))


def from_file(path: Path, layers: int) -> tuple[int, ...]:
    """Quotas by layer from a JSON file: a list, or an object with it as "quotas". Raises UserError, OSError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found = found["quotas"] if isinstance(found, dict) else found
        if not isinstance(found, list) or any(type(quota) is not int for quota in found):
            raise ValueError("expected a list of whole numbers")
    except KeyError:
        raise UserError(f'{path}: no quotas: expected a list, or an object with "quotas"') from None
    except RecursionError:
        raise UserError(f"{path}: no quotas: lists in lists without end") from None
    except ValueError as error:
        raise UserError(f"{path}: no quotas: {error}") from None
    if len(found) not in (1, layers):
        raise UserError(f"{path}: {len(found)} quotas; expected one for each of {layers} layers, or one for all")
    return tuple(found)
