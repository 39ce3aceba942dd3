"""Recipes: a model's expert geometry and published budgets, from TOML, read strictly."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from serving.experts.placement.formats import FORMATS, cell_bytes
from serving.experts.placement.plan import Model
from serving.experts.placement.problem import PlanError, cut

SCHEMA = "moet.experts-recipe.v1"
_GEOMETRY = ("first_layer", "layers", "experts", "top_k", "hidden", "intermediate")
# A model has fewer of anything than this; products of three stay in int64.
_MOST = 2**20


@dataclass(frozen=True)
class Recipe:
    """One model.

    Attributes:
        title: its name as published.
        model: geometry.
        format: of the routed experts.
        gpu: the card that the budgets are for.
        ranks: how many of them.
        full_gib: published size of all experts, None if not published.
        hot_gib: published GPU budgets a rank, the usual first; empty if not published.
        sources: where each figure is from.
    """

    title: str
    model: Model
    format: str
    gpu: str
    ranks: int
    full_gib: float | None
    hot_gib: tuple[float, ...]
    sources: Mapping[str, str]

    @property
    def full_bytes(self) -> int:
        """Bytes of all cells in the recipe's format."""
        cells = len(self.model.layers) * self.model.experts
        return cells * cell_bytes(self.format, self.model.hidden, self.model.intermediate)


def names() -> list[str]:
    """The recipes that come with this."""
    folder = resources.files("serving.experts.recipes")
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def load(name: str) -> Recipe:
    """A recipe by name, or from a file of one's own whose path ends in .toml. Raises PlanError, OSError."""
    if name.endswith(".toml"):
        return parse(Path(name).read_bytes(), name)
    if name not in names():
        near = difflib.get_close_matches(name.lower(), names(), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise PlanError(f"{name!r} is no recipe; {hint}there are {', '.join(names())}, or the path of a .toml")
    found = parse(resources.files("serving.experts.recipes").joinpath(f"{name}.toml").read_bytes(), f"{name}.toml")
    if found.model.name != name:
        raise PlanError(f"{name}.toml: name: expected {name!r}, as the file is named, found {found.model.name!r}")
    return found


def parse(text: bytes, file: str) -> Recipe:
    """Reads a recipe. Raises PlanError that names the file and the key."""
    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{file}: is no TOML: {cut(str(error), 120)}") from None
    _keys(data, {"schema", "name", "title", "geometry", "published", "sources"}, set(), file)
    if data["schema"] != SCHEMA:
        raise PlanError(f"{file}: schema: expected {SCHEMA!r}, found {cut(repr(data['schema']))}")
    geometry, published, sources = (_table(data, key, file) for key in ("geometry", "published", "sources"))
    _keys(geometry, {*_GEOMETRY, "format"}, set(), f"{file}: geometry")
    _keys(published, {"gpu", "ranks"}, {"full_gib", "hot_gib"}, f"{file}: published")
    number = {
        key: _whole(geometry[key], f"{file}: geometry.{key}", 0 if key == "first_layer" else 1) for key in _GEOMETRY
    }
    if number["top_k"] > number["experts"]:
        raise PlanError(f"{file}: geometry.top_k: expected 1 to {number['experts']} experts, found {number['top_k']}")
    form = geometry["format"]
    if not isinstance(form, str) or form not in FORMATS:
        raise PlanError(f"{file}: geometry.format: expected one of {', '.join(FORMATS)}, found {cut(repr(form))}")
    hot = published.get("hot_gib", [])
    if not isinstance(hot, list) or not all(type(one) in (int, float) and 0 < one < 2**20 for one in hot):
        raise PlanError(f"{file}: published.hot_gib: expected a list of GiB, found {cut(repr(hot))}")
    full = published.get("full_gib")
    if full is not None and (type(full) not in (int, float) or not 0 < full < 2**20):
        raise PlanError(f"{file}: published.full_gib: expected GiB, found {cut(repr(full))}")
    texts = [("name", data["name"]), ("title", data["title"]), ("published.gpu", published["gpu"])]
    for key, value in (*texts, *((f"sources.{key}", value) for key, value in sources.items())):
        if not isinstance(value, str) or not value or not value.isprintable():
            raise PlanError(f"{file}: {cut(key)}: expected a string of one line, found {cut(repr(value))}")
    layers = tuple(range(number["first_layer"], number["first_layer"] + number["layers"]))
    model = Model(data["name"], layers, number["experts"], number["top_k"], number["hidden"], number["intermediate"])
    return Recipe(
        data["title"], model, form, published["gpu"], _whole(published["ranks"], f"{file}: published.ranks", 1),
        full, tuple(float(one) for one in hot), dict(sources),
    )  # fmt: skip


def _table(data: Mapping[str, Any], key: str, file: str) -> Mapping[str, Any]:
    if not isinstance(data[key], dict):
        raise PlanError(f"{file}: {key}: expected a table")
    return dict(data[key])


def _keys(table: Mapping[str, Any], needed: set[str], more: set[str], where: str) -> None:
    for key in sorted(needed):
        if key not in table:
            raise PlanError(f"{where}: {key} is missing")
    for key in table:
        if key not in needed | more:
            raise PlanError(f"{where}: {cut(key)}: unknown key; there are {', '.join(sorted(needed | more))}")


def _whole(value: Any, where: str, least: int) -> int:
    if type(value) is not int or not least <= value < _MOST:
        raise PlanError(f"{where}: expected {least} to {_MOST - 1}, found {cut(repr(value))}")
    return value
