import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from serving.experts.recipes import load
from tools.moet import main

PAGE = Path("docs/plan-experts.md").read_text()


def blocks(kind: str) -> list[str]:
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [found[2] for found in fences if found[1] == kind]


def test_transcripts_are_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    (made,) = blocks("python")
    exec(made, {})  # the page's own code
    Path("host.toml").write_text(blocks("toml")[0])
    ran = 0
    for block in blocks(""):
        if not block.startswith("$ moet "):
            continue
        command, _, expected = block.partition("\n")
        out = io.StringIO()
        with redirect_stdout(out):
            assert main.main(command.split()[2:]) == 0
        printed = "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())
        assert printed == expected.rstrip(), command
        ran += 1
    assert ran == 3
    asked = re.search(
        r"`moet (plan experts [^`]* --plot)` ends with:\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert asked is not None
    out = io.StringIO()
    with redirect_stdout(out):
        assert main.main(asked[1].split()) == 0
    assert "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip().endswith(asked[2].rstrip())
    # What the page says of the file.
    plan = json.loads(Path("plan.json").read_text())
    for key in plan:
        assert f"`{key}`" in PAGE, key
    for key in (*plan["model"], *plan["host"], *plan["locations"][0], *plan["layers"][0], *plan["evidence"]):
        assert f"`{key}`" in PAGE, key


@pytest.mark.parametrize("name", load.names())
def test_reckoned_sizes(name: str) -> None:
    found = load.load(name)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
    assert f"| {found.full_bytes / 2**30:.1f} ({found.format.upper()}" in row
    assert f"{len(found.model.layers)} x {found.model.experts}, {found.model.top_k}" in row
