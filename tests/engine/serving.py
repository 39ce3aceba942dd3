"""Settings of a profile, and what is asked of the image's own parser about them."""

import json
from collections.abc import Sequence

from images.engine import layout
from images.manifest import model
from serving.launch import settings
from serving.launch.launch import ALONE, Launch, Network, Node
from serving.launch.plan import plan
from serving.profiles import load
from serving.profiles.model import Knob
from serving.profiles.values import show_of
from tests.engine import inputs

_MODEL = "MODEL_DIR=/models/x"
_FOLDERS = ("KV_OFFLOAD_FS_DIR=/kv", "PROFILER=/profile")

# Settings by what they are meant to show.
CASES: dict[str, tuple[str, ...]] = {
    "default": (),
    "served": ("SERVED=1", "INDEXER_KV_DTYPE=mxfp4"),
    "everything": ("KV_OFFLOAD_GIB=64", *_FOLDERS, "LANGUAGE_ONLY=1", "KV_OFFLOAD_PROMPT_ONLY=0", "DP=2"),
    "hostile": ("SERVED_MODEL_NAME=--x 'y' \"z\" $A {\n", "EXTRA_ARGS=--seed -1"),
    "no speculation": ("SPEC_TOKENS=0",),
}


def line() -> str:
    """The line of the image under test, by its label."""
    image = layout.read(inputs.path("MOET_IMAGE_LAYOUT"))
    return str(json.loads(image.config.path.read_bytes())["config"]["Labels"]["org.moet.line"])


def launch(line: str, *given: str, node: Node = ALONE) -> Launch:
    """The launch of a line with these settings."""
    profile = load.load(line)
    network: Network = "published" if node.count == 1 else "host"
    return plan(settings.resolve(profile, [_MODEL, *given], {}), f"{line}:test", None, network, node).launch


def edges(line: str) -> list[tuple[str, ...]]:
    """Settings in which one knob after the other has each end of its range, and each of its choices."""
    found: list[tuple[str, ...]] = []
    for knob in load.load(line).knobs.values():
        if knob.role is None or knob.role == "offload":
            values = [*knob.choices, *(int(end) if end == int(end) else end for end in _ends(knob))]
            found += [(f"{knob.name}={show_of(knob, value)}",) for value in values]
    return found


def nodes(line: str) -> list[Launch]:
    """The launches of two hosts that share one copy of the model."""
    return [launch(line, "TP=8", node=Node(2, rank, "192.0.2.1")) for rank in range(2)]


def launches(line: str) -> list[Launch]:
    """All launches that the parser is asked about: CASES, edges(), nodes()."""
    given = [*CASES.values(), *edges(line)]
    return [*(launch(line, *one) for one in given), *nodes(line)]


def questions(line: str) -> list[str]:
    """The arguments of probes/serve_parser.py: all launches and a list that is wrong, and all variables."""
    found = launches(line)
    wrong = ["serve", "/model", "--max-num-seq=1", '--speculative-config={"methd":"x"}']
    names = {name for one in found for name in one.environment if name.startswith("VLLM_")}
    variables = ["VLLM_MOET_NO_SUCH", *sorted(names - {model.SELFTEST})]
    return [json.dumps([*(list(one.arguments) for one in found), wrong]), json.dumps(variables)]


def _ends(knob: Knob) -> Sequence[float]:
    return [end for end in (knob.minimum, knob.maximum) if end is not None]
