import argparse
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet import main as program
from tools.moet.verb import Verb

_RAISED = {
    "user": UserError("dsv41:x: no such tag"),
    "os": FileNotFoundError(2, "No such file or directory", "/nowhere"),
    "interrupt": KeyboardInterrupt(),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raise", dest="error", choices=[*_RAISED, "term"])
    parser.add_argument("command", nargs="*")


def run(options: argparse.Namespace, out: Output) -> int:
    if options.error == "term":
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([], 10)
    if options.error:
        raise _RAISED[options.error]
    out.line("\n".join(options.command))
    out.document({"schema": "moet.toy.v1"})
    return 0


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    module = types.ModuleType("tools.moet.verbs.toy_run")
    module.VERB = Verb("toy", "A toy.", arguments, run, (("toy run x", "prints x"),), ((7, "seven"),))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(program, "GROUPS", {"toy": ("toys", ["run"]), "other": ("others", ["gone"])})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["toys"], "'toys' is no group; did you mean `moet toy`? there are toy, other"),
        (["toy", "rum"], "'rum' is no verb of toy; did you mean `moet toy run`? there are run"),
        (["other", "run"], "'run' is no verb of other; did you mean `moet toy run`? there are gone"),
        (["toy", "zzz"], "'zzz' is no verb of toy; there are run"),
        (["toy", "run", "--jso"], "unrecognized arguments: --jso"),
        ([], "the following arguments are required: GROUP"),
    ],
)
def test_wrong_usage(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        program.main(given)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("user", 1, "dsv41:x: no such tag"),
        ("os", 1, "/nowhere: No such file or directory"),
        ("interrupt", 130, "interrupted"),
        ("term", 143, "terminated"),
    ],
)
def test_failure_is_one_line_and_one_document(
    kind: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["toy", "run", "--json", "--raise", kind]) == status
    captured = capsys.readouterr()
    assert captured.err == f"moet toy run: {said}\n"
    assert json.loads(captured.out) == {
        "schema": "moet.error.v1",
        "command": "moet toy run",
        "error": said,
        "exit": status,
    }
    assert program.main(["toy", "run", "--raise", kind]) == status
    assert capsys.readouterr() == ("", f"moet toy run: {said}\n")


def test_words_after_two_dashes_are_the_verbs_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["toy", "run", "--", "git", "--json", "--", "x"]) == 0
    assert capsys.readouterr().out == "git\n--json\n--\nx\n"


def test_help_lists_a_verb_that_cannot_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        program.main(["other", "--help"])
    assert left.value.code == 0
    assert "gone" in capsys.readouterr().out


def test_help_of_a_verb_has_examples_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["toy", "run", "--help"])
    out = capsys.readouterr().out
    assert "moet toy run x\n      prints x" in out
    assert "7   seven" in out


def test_reader_that_goes_away() -> None:
    code = "import sys; sys.path[:] = sys.argv[2].split(':'); from tools.moet import test_main as t, main as p\n"
    code += "t.toy.__wrapped__(__import__('pytest').MonkeyPatch())\n"
    code += "sys.exit(p.main(['toy', 'run', *(['x' * 99] * 20000)]))"
    running = subprocess.Popen(
        [sys.executable, "-c", code, "", ":".join(sys.path)],
        cwd=Path(__file__).parents[2],
        # An unbuffered stdout loses the rest of a write that was cut short, and says nothing.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout and running.stderr
    running.stdout.read(1)
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait() == 141
