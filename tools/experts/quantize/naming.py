"""The names of a checkpoint's tensors, as a pack states them: by a rule for each stack of layers."""

import re
from typing import Any

from serving.experts.storage.reader import Container
from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import MATRICES, Checkpoint
from tools.experts.checkpoint.names import template

_RULE = re.compile(r"[^{}]*\{layer\}[^{}]*\{expert\}[^{}]*")


def stated(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """From which layer on tensors have which names: `first` is what {layer} counts from.

    Raises UserError for a tensor that is not named as the first ones are.
    """
    starts = [(0, checkpoint.layers[0])]
    later = [layer for layer in checkpoint.layers if layer >= (checkpoint.drafter_from or layer + 1)]
    if later and checkpoint.drafter_from is not None:
        starts = [start for start in starts if start[1] < later[0]] + [(checkpoint.drafter_from, later[0])]
    rules = [
        {"first": first, "names": {one: template(checkpoint.name(layer, 0, one)) for one in MATRICES}}
        for first, layer in starts
    ]
    for layer in checkpoint.layers:
        for expert in range(checkpoint.experts):
            for matrix in MATRICES:
                found, expected = checkpoint.name(layer, expert, matrix), name(rules, layer, expert, matrix)
                if found != expected:
                    first = checkpoint.name(checkpoint.layers[0], 0, matrix)
                    raise UserError(
                        f"{checkpoint.path}: {found}: is not named as {first} is; expected {expected}:"
                        " take such layers one after the other, with --layers"
                    )
    return rules


def of(pack: Container) -> list[dict[str, Any]]:
    """The rules that a pack states. Raises UserError where it states none for all its tensors."""
    rules = pack.header.extra.get("names")
    if not isinstance(rules, list) or not rules or not all(_sound(rule) for rule in rules):
        raise _none(pack)
    firsts = [rule["first"] for rule in rules]
    if firsts != sorted(set(firsts)) or firsts[0] > pack.header.layers[0]:
        raise _none(pack)
    return rules


def name(rules: list[dict[str, Any]], layer: int, expert: int, matrix: str) -> str:
    """The name of a matrix's weight in the checkpoint."""
    rule = [one for one in rules if layer >= one["first"]][-1]
    return str(rule["names"][matrix]).format(layer=layer - rule["first"], expert=expert)


def _sound(rule: object) -> bool:
    if not isinstance(rule, dict) or type(rule.get("first")) is not int or rule["first"] < 0:
        return False
    names = rule.get("names")
    if not isinstance(names, dict) or set(names) != set(MATRICES) or len(set(names.values())) != len(MATRICES):
        return False
    return all(isinstance(one, str) and one.isprintable() and _RULE.fullmatch(one) for one in names.values())


def _none(pack: Container) -> UserError:
    return UserError(
        f"{pack.path}: its sidecar states no names of tensors for all its layers; quantize the checkpoint anew"
    )
