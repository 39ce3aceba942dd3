import ast
from pathlib import Path

import pytest

from images.inspect import source
from releases.bisect import cutting, plan, verdict
from releases.bisect.log import Log
from releases.bisect.verdict import Judgement, Subject, Verdict
from tests.engine import synthetic
from tools.cli.errors import UserError

SUBJECT = Subject("sha256:abc", Path("/layouts/one"), {"VLLM_MOET_B": "0", "VLLM_MOET_A": "64"}, (1, 2))


def test_words_of_command() -> None:
    words = SUBJECT.words(["docker", "run", "{env}", "{image}", "sh", "-c", "run {env} x{image} {layout} {other}"])
    env = ["-e", "VLLM_MOET_A=64", "-e", "VLLM_MOET_B=0"]
    assert words[:8] == ["docker", "run", *env, "sha256:abc", "sh"]
    assert words[9] == f"run {' '.join(env)} xsha256:abc /layouts/one {{other}}"


@pytest.mark.parametrize(
    ("script", "repeat", "found", "runs"),
    [
        ("exit 0", 1, Verdict.GOOD, 1),
        ("exit 1", 3, Verdict.BAD, 2),
        ("exit 124", 1, Verdict.BAD, 1),
        ("exit 125", 1, Verdict.UNKNOWN, 1),
        ("n=$(cat {0} 2>/dev/null || echo 0); echo $((n+1)) > {0}; exit $((n % 2))", 5, Verdict.GOOD, 5),
        ("n=$(cat {0} 2>/dev/null || echo 0); echo $((n+1)) > {0}; exit $((n % 2))", 2, Verdict.UNKNOWN, 2),
    ],
)
def test_verdict_is_the_exit_status(script: str, repeat: int, found: Verdict, runs: int, tmp_path: Path) -> None:
    command = ["sh", "-c", script.replace("{0}", str(tmp_path / "n"))]
    judged = verdict.judge(command, SUBJECT, {"PATH": "/usr/bin:/bin"}, repeat)
    assert (judged.verdict, len(judged.statuses)) == (found, runs)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "exit 126"], "exit status 126: a verdict is an exit status up to 125"),
        (["sh", "-c", "no-such-program-here"], "exit status 127: sh found no such program"),
        (["sh", "-c", "kill -9 $$"], "was ended by signal 9"),
        (["/no/such"], "COMMAND /no/such: No such file or directory"),
        (["sh", "-c", "exit 200"], "exit status 200"),
    ],
)
def test_broken_command_stops_it(command: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        verdict.judge(command, SUBJECT, {"PATH": "/usr/bin:/bin"}, 3)


def test_command_finds_everything_in_its_environment_and_stdout_stays_clean(capfd: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", "echo $MOET_IMAGE $MOET_LAYOUT $MOET_ENV $MOET_STEPS $VLLM_MOET_B"]
    verdict.judge(command, SUBJECT, {"PATH": "/usr/bin:/bin"}, 1)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "sha256:abc /layouts/one -e VLLM_MOET_A=64 -e VLLM_MOET_B=0 1 2 0\n"


def test_log_goes_on_and_refuses_another_bisects(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Log(path, {"good": "a"}).add("switches", 3, Judgement(Verdict.BAD, (1, 1)))
    assert Log(path, {"good": "a"}).get("switches", 3) == Judgement(Verdict.BAD, (1, 1))
    assert Log(path, {"good": "a"}).get("rebuilt", 3) is None
    with pytest.raises(UserError, match=r'is of another bisect \(good was "a", is "b"\)'):
        Log(path, {"good": "b"})
    path.write_text("notes of mine\n")
    with pytest.raises(UserError, match="is no log of a bisect"):
        Log(path, {"good": "a"})
    assert path.read_text() == "notes of mine\n"


def test_plan(tmp_path: Path) -> None:
    one, two, three = synthetic.step(1, "one"), synthetic.step(2, "two", switch=None), synthetic.step(3, "three")
    four = synthetic.step(4, "four", default="0")
    good = synthetic.make_moet_layout(tmp_path / "g", "toy:vllm0.33.0-r1", steps=[one, synthetic.step(9, "gone")])
    bad = synthetic.make_moet_layout(
        tmp_path / "b",
        "toy:vllm0.33.0-r2",
        steps=[one, two, three, four],
        patches={"one.patch": "changed"},
        pins={"torch": "2"},
    )
    made = plan.make(*(source.open_image(f"layout://{path}", None).manifest for path in (good, bad)))
    assert [step.number for step in made.suspects] == [1, 2, 3, 4]
    assert made.switchable_from == 2
    assert made.live(2) == (1, 2)
    assert made.switches(2, {"VLLM_MOET_FOUR": "1", "VLLM_MOET_ONE": "7", "VLLM_MOET_X": "1"}) == {
        "VLLM_MOET_ONE": "7",
        "VLLM_MOET_THREE": "0",
        "VLLM_MOET_FOUR": "0",
    }
    assert made.switches(4, {"VLLM_MOET_FOUR": "1"}) == {"VLLM_MOET_FOUR": "1"}
    assert "step 9 gone (gone)" in made.outside
    assert "wheel torch 2 (new)" in made.outside


LINE = """X = line(
    name = "x",
    steps = [
        step(
            number = 1,
            name = "one",
            patches = ["one.patch"],
        ),
        # why two
        step(number = 2, name = "two", patches = ["two.patch"]),
        step(
            number = 3,
            name = "three",
            patches = ["three.patch"],
        ),
    ],
)
"""


@pytest.mark.parametrize("off", [{1}, {2}, {3}, {1, 3}, {1, 2, 3}, set()])
def test_line_without_steps_is_still_data(off: set[int]) -> None:
    text = cutting.without_steps(LINE, off, "line.bzl")
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert len(calls) == 4 - len(off)
    for number, name in ((1, "one"), (2, "two"), (3, "three")):
        assert (f'"{name}.patch"' in text) == (number not in off)


def test_line_that_lacks_the_step() -> None:
    with pytest.raises(UserError, match=r"line\.bzl: has no step\(number = 4"):
        cutting.without_steps(LINE, {4}, "line.bzl")


def test_series_without_patches() -> None:
    text = "# order\none.patch\ntwo.patch # why\nthree.patch\n"
    assert cutting.without_patches(text, {"two.patch"}) == "# order\none.patch\nthree.patch\n"
