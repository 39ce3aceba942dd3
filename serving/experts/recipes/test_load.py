from pathlib import Path

import pytest

from serving.experts.placement.problem import PlanError
from serving.experts.recipes import load

FOUR = ["deepseek-v4.1-flash", "glm-5.3", "glm-5.3-flash", "mimo-v2.6-pro"]


def text_of(name: str) -> str:
    return (Path(load.__file__).parent / f"{name}.toml").read_text()


def test_there_are_four() -> None:
    assert load.names() == FOUR


@pytest.mark.parametrize(
    ("name", "layers", "experts", "top_k", "full_gib", "hot_gib"),
    [
        ("mimo-v2.6-pro", 69, 384, 8, 492, (79,)),
        ("deepseek-v4.1-flash", 40, 384, 6, 280, (52, 47, 57)),
        ("glm-5.3", 75, 256, 8, 380, (36, 31, 41)),
        ("glm-5.3-flash", 42, 288, 8, None, ()),
    ],
)
def test_published_figures(
    name: str, layers: int, experts: int, top_k: int, full_gib: float | None, hot_gib: tuple[float, ...]
) -> None:
    found = load.load(name)
    model = found.model
    assert (len(model.layers), model.experts, model.top_k) == (layers, experts, top_k)
    assert (found.full_gib, found.hot_gib, found.ranks) == (full_gib, hot_gib, 4)
    if full_gib is None:
        assert found.sources["full_gib"] == found.sources["hot_gib"] == "not published"
    else:
        # The geometry gives the published size to within its tilde.
        assert found.full_bytes / 2**30 == pytest.approx(full_gib, rel=0.045)
        assert 4 * hot_gib[0] < full_gib


def test_store_record_of_deepseek() -> None:
    found = load.load("deepseek-v4.1-flash")
    assert found.full_bytes == 15_360 * 18_800_640


def test_own_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        text_of("glm-5.3").replace('name = "glm-5.3"', 'name = "mine"').replace("layers = 75", "layers = 2")
    )
    assert load.load(str(path)).model.layers == (3, 4)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("layers = 75", "layers = 0", "geometry.layers: expected 1 to"),
        ("layers = 75", "layers = 75.0", "geometry.layers: expected 1 to"),
        ("experts = 256", "experts = true", "geometry.experts: expected 1 to"),
        ("hidden = 6144", "hidden = 99999999", "geometry.hidden: expected 1 to"),
        ("top_k = 8", "top_k = 300", "geometry.top_k: expected 1 to 256 experts, found 300"),
        ("first_layer = 3", "first_layer = -1", "geometry.first_layer: expected 0 to"),
        ("experts = 256\n", "", "geometry: experts is missing"),
        ("experts = 256", "expert = 256", "geometry: experts is missing"),
        ("ranks = 4", "ranks = 4\nrank = 4", "published: rank: unknown key"),
        ('"nvfp4"', '"int3"', "geometry.format: expected one of w2"),
        ("hot_gib = [36, 31, 41]", "hot_gib = [nan]", "published.hot_gib: expected a list of GiB"),
        ("full_gib = 380", "full_gib = inf", "published.full_gib: expected GiB"),
        ("experts-recipe.v1", "experts-recipe.v2", "schema: expected"),
        ('title = "GLM-5.3"', 'title = ""', "title: expected a string"),
        ('gpu = "RTX PRO 6000"', "gpu = 6000", "published.gpu: expected a string"),
        ("[geometry]", "[geometrie]", "geometry is missing"),
        ("[geometry]", "[geometry", "is no TOML"),
        ("layers = 75", "layers = " + "9" * 5000, "is no TOML"),
        ("layers = 75", "layers = " + "[" * 5000, "is no TOML"),
        ("layers = 75", 'layers = "' + "x" * 999 + '"', "geometry.layers: expected 1 to"),
        ("ranks = 4", 'ranks = 4\n"ra\\nnk" = 4', r"published: 'ra\nnk': unknown key"),
        ('title = "GLM-5.3"', 'title = "GLM\\n5.3"', "title: expected a string of one line"),
        ('title = "GLM-5.3"', 'title = "GLM\\u001b[2J"', "title: expected a string of one line"),
        ('"nvfp4"', '["' + "x" * 999 + '"]', "geometry.format: expected one of w2"),
    ],
)
def test_what_is_refused(before: str, after: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        load.parse(text_of("glm-5.3").replace(before, after).encode(), "mine.toml")
    assert words in str(error.value) and str(error.value).startswith("mine.toml: ")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_names_that_are_none() -> None:
    with pytest.raises(PlanError, match=r"did you mean glm-5\.3-flash\?"):
        load.load("GLM-5.3-flsh")
    with pytest.raises(FileNotFoundError):
        load.load("/nowhere/mine.toml")
