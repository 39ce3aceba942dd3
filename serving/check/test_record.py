"""Receipts of checks, in a tree with a release: what `moet release check` makes of them."""

import json
from pathlib import Path

import pytest

from releases.checking.check_evidence import Receipts
from releases.receipts import receipt
from releases.receipts.receipt import Receipt
from releases.tree.git import Git
from serving.check.record import Record
from serving.check.standin import standin
from serving.check.target import Target
from serving.probe.api import Api
from tests.release.toy import R1, Toy, make_toy, moet
from tools.cli.errors import UserError

OUT = "docs/evidence/a/check.json"


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return make_toy(tmp_path / "toy")


def target(toy: Toy) -> Target:
    digest = toy.entry(R1).digest
    return Target(Api("http://127.0.0.1:8001", "m"), "toy", True, digest=digest, tag=R1, doubt="")


def test_a_receipt_can_be_cited(toy: Toy) -> None:
    record = Record(toy.root, toy.root / OUT, target(toy), ["moet", "serve", "check", str(toy.root / "k")])
    assert not (toy.root / OUT).exists()
    assert record.write(f"pass     decode: 129.3 steps/s, {toy.root}/x\n") == OUT
    digest = toy.entry(R1).digest
    found = Receipts(toy.root, {digest: R1}).get(OUT)
    assert isinstance(found, Receipt), found
    assert (found.subject.tag, found.subject.digest, found.exit) == (R1, digest, 0)
    assert found.output == "pass     decode: 129.3 steps/s, <tree>/x\n" and found.command[-1] == "<tree>/k"
    assert found.commit == Git(toy.root).head()


def test_what_can_have_no_receipt_is_said_before_anything_is_asked(toy: Toy) -> None:
    with pytest.raises(UserError, match=r"receipts are \.json files below docs/evidence"):
        Record(toy.root, toy.root / "b.json", target(toy), [])
    away = Target(Api("http://192.0.2.1:1", "m"), "away", False)
    with pytest.raises(UserError, match="is not this host"):
        Record(toy.root, toy.root / OUT, away, [])


def test_a_check_by_url_has_a_receipt_without_its_image(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toy.root)
    with standin(tmp_path / "model") as server:
        words = ["serve", "check", server.url, "--only=json", "--only=decode", f"--receipt={OUT}"]
        status, out, err = moet(*words, "--json")
        assert status == 0 and json.loads(out)["receipt"] == OUT
        assert "the image is unknown (a server that is known by its URL" in err
        made = receipt.read(toy.root / OUT)
        # A figure in it must be one that was measured.
        assert "others published" not in made.output
        assert made.output.startswith("pass     server: ") and " 0 fail, " in made.output.splitlines()[-1]
        assert made.command == ("moet", "serve", "check", server.url, "--only", "json", "--only", "decode")
        assert Receipts(toy.root, {}).get(OUT) == "is about unknown, which no release here has"
        assert "others published" in moet(*words[:-1])[1]
        server.behave(wrong=["json"])
        other = "docs/evidence/a/other.json"
        status, out, err = moet(*words[:-1], f"--receipt={other}")
        assert status == 1 and "checks failed: no receipt was written" in err
        assert not (toy.root / other).exists()
