import argparse
import contextlib
import shlex
from pathlib import Path

import pytest

from tools.moet import main as program
from tools.moet import reference


def test_page_is_that_of_the_code() -> None:
    assert reference.PATH.read_text() == reference.text(), "bazel run //tools/moet:reference"


def test_every_argument_has_help() -> None:
    for line in reference.text().splitlines():
        if line.startswith("| `"):
            assert not line.endswith("|  |"), line


def test_every_verb_is_listed() -> None:
    listed = {f"{group}_{name.replace('-', '_')}" for group, (_, names) in program.GROUPS.items() for name in names}
    found = {path.stem for path in Path(program.__file__).with_name("verbs").glob("*.py")}
    assert listed == found


def test_every_example_is_one_of_the_verb() -> None:
    for group, (_, names) in program.GROUPS.items():
        for name in names:
            for command, meaning in program.verb(group, name).examples:
                assert command.startswith(f"{group} {name}"), command
                assert meaning
                # Wrong usage would leave by SystemExit.
                program.parser([group, name]).parse_args(shlex.split(command))


@pytest.mark.parametrize("group", program.GROUPS)
@pytest.mark.parametrize("value", ["x", "", "nan", "-1", "1,,2"])
def test_a_value_that_is_refused_is_refused_in_words(group: str, value: str) -> None:
    """argparse says of any other exception which function of the program did not take the value."""
    for name in program.GROUPS[group][1]:
        parser = argparse.ArgumentParser()
        program.verb(group, name).arguments(parser)
        for action in parser._actions:
            if callable(action.type) and action.type not in (int, float):
                with contextlib.suppress(argparse.ArgumentTypeError):
                    action.type(value)
