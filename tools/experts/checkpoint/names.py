"""Names of the tensors of routed experts.

Two families: `model.layers.3.mlp.experts.7.gate_proj.weight_scale` with gate, up and down (GLM, Kimi, DeepSeek V3; Kimi
has `language_model.` ahead of it), and `layers.3.ffn.experts.7.w1.scale` with w1, w3 and w2 (DeepSeek V4), whose
drafter's layers are `mtp.0.ffn...`.
"""

import re
from dataclasses import dataclass

MATRICES = {"w1": "w1", "w2": "w2", "w3": "w3", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}

# Parts that quantizers write beside a weight; `input_scale` is of the activations and not needed.
PARTS = {
    "weight": "weight",
    "scale": "scale",
    "weight_scale": "scale",
    "weight_scale_inv": "scale",
    "weight_scale_2": "scale_2",
}

_NUMBER = r"0|[1-9][0-9]{0,5}"

_NAME = re.compile(
    rf"(?:.+\.)?(?P<stack>layers|mtp)\.(?P<layer>{_NUMBER})\.(?:mlp|ffn)\.experts\.(?P<expert>{_NUMBER})\."
    rf"(?P<matrix>{'|'.join(MATRICES)})\.(?P<part>\w+)"
)


@dataclass(frozen=True, order=True)
class Place:
    """Whose tensor it is; `layer` counts within the drafter where `drafter`."""

    drafter: bool
    layer: int
    expert: int
    matrix: str
    part: str


def parse(name: str) -> Place | None:
    """Whose tensor has this name; None when it is none of a routed expert's weights.

    >>> parse("layers.3.ffn.experts.7.w2.scale")
    Place(drafter=False, layer=3, expert=7, matrix='w2', part='scale')
    """
    found = _NAME.fullmatch(name)
    if found is None or found["part"] == "input_scale":
        return None
    part = PARTS.get(found["part"], found["part"])
    return Place(found["stack"] == "mtp", int(found["layer"]), int(found["expert"]), MATRICES[found["matrix"]], part)


def template(name: str) -> str:
    """The name with {layer} and {expert} for its numbers, as str.format takes it.

    >>> template("mtp.0.ffn.experts.7.w2.weight")
    'mtp.{layer}.ffn.experts.{expert}.w2.weight'

    Raises ValueError when it is none of a routed expert's weights.
    """
    found = _NAME.fullmatch(name)
    if found is None or "{" in name:
        raise ValueError(f"{name}: no routed expert's")
    before, between, after = name[: found.start("layer")], found.end("layer"), name[found.end("expert") :]
    return f"{before}{{layer}}{name[between : found.start('expert')]}{{expert}}{after}"
