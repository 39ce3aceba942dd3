import json
import os
import socket
from pathlib import Path

import pytest

from releases.receipts import machine, receipt
from releases.testing.toy import R1, Toy
from tests.faults import killer
from tools.cli.errors import UserError

OUT = "docs/evidence/a/b.json"


def run(toy: Toy, *words: str, tag: str | None = str(R1), **environment: str) -> killer.Outcome:
    subject = ["--tag", tag] if tag else []
    return killer.run(0, "tools.moet.main", ["release", "receipt", *subject, *words], toy.root, environment)


def test_a_receipt_says_what_ran_where(toy: Toy) -> None:
    entry = toy.changelog.entries[0]
    done = run(toy, "--out", OUT, "--", "sh", "-c", "echo 94 passed; echo oops >&2")
    assert done.status == 0, done.errors
    assert done.output == f"94 passed\noops\nwrote {OUT}: link to it with [receipt]({OUT})\n"
    made = receipt.read(toy.root / OUT)
    assert (made.subject.tag, made.subject.digest) == (str(R1), entry.digest)
    assert made.command == ("sh", "-c", "echo 94 passed; echo oops >&2")
    assert (made.exit, made.output) == (0, "94 passed\noops\n")
    assert (made.commit, made.modified) == (toy.git("rev-parse", "HEAD"), ())
    assert made.hardware.cores == len(os.sched_getaffinity(0))
    assert made.hardware.memory > 1 << 20
    assert made.software.kernel.startswith("Linux ")


def test_the_machine_s_places_are_left_out(toy: Toy, tmp_path: Path) -> None:
    script = "pwd; echo $HOME/x:$HOME; echo $0 /home-x; echo $HOME.d; hostname; printf 'a\\rb\\033[31mc\\033[0m\\n'"
    home = tmp_path / "home"
    done = run(toy, "--out", OUT, "--", "sh", "-c", script, str(toy.root / "x"), HOME=str(home), TMPDIR="")
    assert done.status == 0, done.errors
    made = receipt.read(toy.root / OUT)
    # A host's name of one or two letters is a word of its own too often.
    host = "<host>" if len(socket.gethostname()) > 2 else socket.gethostname()
    assert made.output == f"<tree>\n<home>/x:<home>\n<tree>/x /home-x\n{home}.d\n{host}\nbc\n"
    assert made.command[-1] == "<tree>/x"


def test_a_command_that_fails_leaves_no_receipt(toy: Toy) -> None:
    done = run(toy, "--out", OUT, "--", "sh", "-c", "echo 93 passed; exit 7")
    assert (done.status, done.output) == (7, "93 passed\n")
    assert "sh failed with exit status 7: no receipt was written" in done.errors
    assert not (toy.root / OUT).exists()
    killed = run(toy, "--out", OUT, "--", "sh", "-c", "kill -9 $$")
    assert killed.status == 128 + 9
    assert not (toy.root / OUT).exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", OUT], "no command was given"),
        (["--out", OUT, "--"], "no command was given"),
        (["--out", OUT, "--", "/no/such/program"], "/no/such/program: cannot be run: No such file"),
        (["--out", "b.json", "--", "true"], "b.json: receipts are .json files below docs/evidence"),
        (["--out", "docs/evidence/../../b.json", "--", "true"], "receipts are .json files below docs/evidence"),
        (["--out", "docs/evidence/b.txt", "--", "true"], "receipts are .json files below docs/evidence"),
        (["--out", "docs/evidence/toy-vllm0.33.0-r1/test.json", "--", "true"], "exists already"),
    ],
)
def test_refusals(toy: Toy, words: list[str], says: str) -> None:
    done = run(toy, *words)
    assert done.status == 1
    assert done.errors.startswith("moet release receipt: ")
    assert says in done.errors
    assert done.errors.count("\n") == 1
    assert toy.git("status", "--porcelain") == ""


def test_refuses_a_release_that_is_none(toy: Toy) -> None:
    done = run(toy, "--out", OUT, "--", "true", tag="toy:vllm0.33.0-r9")
    assert done.status == 1
    assert "toy:vllm0.33.0-r9: no release in CHANGELOG.md; it has toy:vllm0.33.0-r1, toy:vllm0.33.0-r0" in done.errors
    bad = run(toy, "--digest", "sha256:1", "--out", OUT, "--", "true", tag=None)
    assert "--digest 'sha256:1': expected sha256:<64 hex digits>" in bad.errors


def test_a_digest_finds_its_tag(toy: Toy) -> None:
    entry = toy.changelog.entries[0]
    done = run(toy, "--digest", entry.digest, "--json", "--out", OUT, "--", "echo", "1 passed", tag=None)
    assert json.loads(done.output)["subject"] == {"tag": str(R1), "digest": entry.digest}
    assert "1 passed" in done.errors
    other = "docs/evidence/a/c.json"
    assert run(toy, "--digest", "sha256:" + "0" * 64, "--out", other, "--", "true", tag=None).status == 0
    assert receipt.read(toy.root / other).subject.tag is None


def test_modified_files_are_named(toy: Toy) -> None:
    toy.edit("pins.txt", "torch", "tor")
    assert run(toy, "--out", OUT, "--", "true").status == 0
    assert receipt.read(toy.root / OUT).modified == ("pins.txt",)


def test_in_commit(toy: Toy, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bazel").write_text("#!/bin/sh\n")
    (programs / "bazel").chmod(0o755)
    toy.edit("pins.txt", "torch", "tor")
    script = f"pwd; cat pins.txt; echo {toy.root}/x"
    given = {"HOME": str(tmp_path / "home"), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = run(toy, "--in-commit", "--out", OUT, "--", "sh", "-c", script, **given)
    assert done.status == 0, done.errors
    made = receipt.read(toy.root / OUT)
    assert made.output == "<tree>\ntorch 2.14.0\n<tree>/x\n"
    assert (made.commit, made.modified) == (toy.changelog.entries[0].commit, ())
    assert list((tmp_path / "home").rglob("moet-release-*")) == []


def test_of_much_output_the_end_is_kept(toy: Toy) -> None:
    script = "import sys; sys.stdout.write('x' * 5_000_000 + 'the end')"
    shown: list[bytes] = []
    made = receipt.take(toy.root, receipt.Subject(None, "sha256:0"), ["python3", "-c", script], show=shown.append)
    assert sum(map(len, shown)) == 5_000_007
    assert made.output.startswith("[3951431 bytes before this are left out]\nxxx")
    assert made.output.endswith("xthe end")


def test_killed_anywhere_there_is_a_receipt_or_none(toy: Toy) -> None:
    words = ["release", "receipt", "--tag", str(R1), "--out", OUT, "--", "echo", "94 passed"]
    count = len(killer.events("tools.moet.main", words, toy.root))
    (toy.root / OUT).unlink()
    for at in killer.spread(count, 12):
        assert killer.run(at, "tools.moet.main", words, toy.root).killed
        if (toy.root / OUT).exists():
            assert receipt.read(toy.root / OUT).exit == 0
            (toy.root / OUT).unlink()


def test_clean_prefers_the_longest() -> None:
    replaced = {"/a": "<a>", "/a/b": "<b>", "box": "<host>"}
    assert machine.clean("/a/b/c /a/c /x/a/b /a/bc /a.", replaced) == "<b>/c <a>/c /x/a/b <a>/bc <a>."
    assert machine.clean("box: root@box box2 sandbox", replaced) == "<host>: root@<host> box2 sandbox"


def test_reading_what_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        receipt.read(tmp_path / "none.json")
