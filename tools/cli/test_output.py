import json

import pytest

from tools.cli.output import Output


def test_table_keeps_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(["name", ">MB"], [["[bold]x[/bold]", 1.5], ["y" * 90, None]])
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "y" * 90 in out


def test_text_is_byte_for_byte_and_withheld_from_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[bold]a\tb[/bold] " + "x" * 500 + "\n\n"
    Output().text(text)
    Output(as_json=True).text(text)
    assert capsys.readouterr().out == text


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.line("for people")
    out.table(["a"], [["b"]])
    out.document({"schema": "x"})
    assert json.loads(capsys.readouterr().out) == {"schema": "x"}


def test_notes_and_progress_are_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    with out.doing("building"), out.progress() as bar:
        bar.start("sending", 10)
        bar.advance(10)
    out.note("done")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.split() == ["building", "done"]
