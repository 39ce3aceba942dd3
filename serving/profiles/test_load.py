from pathlib import Path

import pytest

from serving.profiles import load
from serving.profiles.model import FirstStart, Needs, Start
from tools.cli.errors import UserError

# A profile of the least that is needed.
LEAST = """
schema = "moet.profile.v1"
line = "toy"
title = "Toy"
[container]
port = 8000
model = "/model"
shared_memory_gib = 1
ulimits = { memlock = -1 }
[serve]
flags = ["--x"]
environment = { A = "1" }
[needs]
model_type = "toy"
compute_capabilities = ["12.0"]
driver = 580
[start]
expected_seconds = 10
deadline_seconds = 30
[knobs]
MODEL = { kind = "folder", meaning = "m", role = "model" }
IMAGE = { kind = "image", meaning = "m", role = "image" }
NAME = { kind = "name", meaning = "m", role = "name", default = "toy" }
TP = { kind = "integer", meaning = "m", role = "tp", default = 1 }
DP = { kind = "integer", meaning = "m", role = "dp", default = 1 }
GPUS = { kind = "devices", meaning = "m", role = "gpus" }
BIND = { kind = "address", meaning = "m", role = "bind", default = "127.0.0.1" }
PORT = { kind = "integer", meaning = "m", role = "port", default = 80 }
KEY = { kind = "file", meaning = "m", role = "key" }
OFFLOAD = { kind = "number", meaning = "m", role = "offload", default = 0, off = 0 }
UTIL = { kind = "number", meaning = "m", flag = "--u", default = 0.9, minimum = 0.5, maximum = 1 }
"""


def first(at_most: str) -> str:
    """A first start with these highest values, in front of the knobs."""
    return f"[first_start]\nexpected_seconds = 1\ndeadline_seconds = 2\nat_most = {{ {at_most} }}\n[knobs]"


def test_least_profile_is_read() -> None:
    profile = load.parse(LEAST, "toy.toml")
    assert profile.container.ulimits == {"memlock": -1}
    assert profile.serve.flags == ("--x",) and profile.serve.environment == {"A": "1"}
    assert profile.needs == Needs("toy", ("12.0",), 580)
    assert (profile.start, profile.first_start) == (Start(10, 30), None)
    assert list(profile.knobs)[:2] == ["MODEL", "IMAGE"]
    assert profile.by_role("port").default == 80


def test_first_start() -> None:
    profile = load.parse(LEAST.replace("[knobs]", first("UTIL = 0.75")), "toy.toml")
    assert profile.first_start == FirstStart(1, 2, {"UTIL": 0.75})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("moet.profile.v1", "moet.profile.v2", "schema: expected 'moet.profile.v1', found 'moet.profile.v2'"),
        ('line = "toy"\n', "", "line: is missing"),
        ("port = 8000", 'port = "8000"', "container.port: expected an integer, found '8000'"),
        ("port = 8000", "port = true", "container.port: expected an integer, found True"),
        ("port = 8000", "prot = 1\nport = 8000", "container.prot: unknown key; did you mean port? there are model, po"),
        ('flags = ["--x"]', 'flags = ["--x", 1]', "serve.flags[1]: expected a string, found 1"),
        ('environment = { A = "1" }', "environment = { A = 1 }", "serve.environment.A: expected a string, found 1"),
        ("driver = 580", 'driver = "580"', "needs.driver: expected an integer, found '580'"),
        ("deadline_seconds = 30", "deadline_seconds = 10", "start.deadline_seconds: expected more than expected_se"),
        ("[knobs]", "[first_start]\nat_most = {}\n[knobs]", "first_start.expected_seconds: is missing"),
        ("[knobs]", first("X = 1"), "first_start.at_most: X is no knob with a number"),
        ("[knobs]", first("NAME = 1"), "first_start.at_most: NAME is no knob with a number"),
        ("[knobs]", first("TP = true"), "first_start.at_most.TP: expected a number, found True"),
        ("[knobs]", first("UTIL = 2"), "first_start.at_most.UTIL: 2: expected a number from 0.5 to 1"),
        ("MODEL = {", "model = {", "knobs.model: expected capital letters, digits and _ as a knob's name"),
        ('kind = "folder"', 'kind = "dir"', "knobs.MODEL.kind: expected one of address, boolean"),
        ('kind = "folder", meaning', 'kind = "folder", meening = "m", meaning', "knobs.MODEL.meening: unknown key;"),
        ('role = "model" }', 'role = "modle" }', "knobs.MODEL.role: expected one of"),
        ('role = "model" }', 'flag = "-m", role = "model" }', "knobs.MODEL.flag: expected --lower-case-words, found"),
        (', role = "model" }', " }", "knobs: expected one with role = 'model', found none"),
        ('role = "key" }', 'role = "model" }', "knobs: expected one with role = 'key', found none"),
        ('role = "model" }', 'role = "model", needs = ["X"] }', "knobs.MODEL.needs: X is no knob"),
        ('role = "model" }', 'role = "model", json."--j" = { a = "{X}" } }', "knobs.MODEL.json: X is no knob"),
        ('role = "model" }', 'role = "model", mount = { target = "x" } }', "knobs.MODEL.mount.target: expected an abs"),
        ('role = "model" }', 'role = "model", presets = { TP = "x" } }', "knobs.MODEL.presets.TP: 'x': expected an"),
        ("default = 80", "default = 80.5", "knobs.PORT.default: expected an integer, found 80.5"),
        ("default = 80", "default = 80, maximum = 79, minimum = 1", "knobs.PORT.default: 80: expected an integer from"),
        ('kind = "file"', 'kind = "choice"', "knobs.KEY.choices: expected where kind is choice or integer"),
        ('kind = "file"', 'kind = "switch"', "knobs.KEY.default: expected 0 or 1, found None"),
        ('title = "Toy"', "title = ", "is no TOML: Invalid value"),
        ('title = "Toy"', 'title = "Toy"\ntitle = "Toy"', "is no TOML: Cannot overwrite a value"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_key(before: str, after: str, said: str) -> None:
    assert before in LEAST
    with pytest.raises(load.ProfileError) as error:
        load.parse(LEAST.replace(before, after, 1), "toy.toml")
    assert str(error.value).startswith(f"toy.toml: {said}")
    assert "\n" not in str(error.value)


def test_profile_that_there_is_not() -> None:
    with pytest.raises(UserError, match=r"^'dsv4' is no profile; did you mean dsv41\? there are dsv41"):
        load.load("dsv4")
    with pytest.raises(UserError, match="is no profile"):
        load.load("../profiles/dsv41")


def test_profiles_of_a_tree_stand_for_those_that_came_with_this(tmp_path: Path) -> None:
    assert load.load("dsv41", tmp_path).line == "dsv41"
    folder = tmp_path / "serving/profiles"
    folder.mkdir(parents=True)
    (folder / "toy.toml").write_text(LEAST)
    assert load.load("toy", tmp_path).title == "Toy"
    with pytest.raises(UserError, match=r"^'dsv41' is no profile; there are toy$"):
        load.load("dsv41", tmp_path)
