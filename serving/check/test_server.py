"""`moet serve check` of a server that `moet serve up` started, in a dockerd of its own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from releases.checking.check_evidence import Receipts
from releases.receipts.receipt import Receipt
from tests.engine.engines import Dockerd
from tests.release.toy import LINE, R1, moet
from tests.standin.engine import serving_dockerd
from tests.standin.host import Host, enter, make_host

OUT = "docs/evidence/toy/check.json"
SMALL = ("--tokens=64", "--only=decode", "--only=tools")


@pytest.fixture(scope="module")
def docker() -> Iterator[Dockerd]:
    with serving_dockerd() as engine:
        yield engine


@pytest.fixture
def host(docker: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = make_host(tmp_path, docker)
    enter(made, monkeypatch)
    monkeypatch.chdir(made.toy.root)
    status, _, err = moet(*made.serve("up", LINE))
    assert status == 0, err
    return made


def test_the_only_server_is_known_with_its_image(host: Host) -> None:
    status, out, err = moet(*host.serve("check", *SMALL, f"--receipt={OUT}", "--json"))
    assert status == 0, err
    document = json.loads(out)
    digest = host.toy.entry(R1).digest
    assert document["server"] == f"{LINE}, generation 1 ({R1})" and document["line"] == LINE
    assert document["image"] == {"digest": digest, "tag": R1, "doubt": ""}
    found = Receipts(host.toy.root, {digest: R1}).get(OUT)
    assert isinstance(found, Receipt), found
    # PORT comes from this host's environment; its folders, and the image that nobody asked for by name, are left out.
    assert f"; image {R1}; PORT={host.port}\n" in found.output
    assert found.command[3:] == ("--tokens", "64", "--only", "decode", "--only", "tools")


def test_without_its_container_a_server_s_image_is_not_known(host: Host, docker: Dockerd) -> None:
    docker.client.containers.get(LINE).rename("other")
    status, out, _ = moet(*host.serve("check", "--server", LINE, *SMALL))
    assert status == 0 and f"image not known: no container {LINE} is running" in out


def test_a_slow_server_is_told_what_its_launch_and_its_image_have_off(host: Host) -> None:
    host.behave(tokens_per_second=100)
    status, out, _ = moet(*host.serve("check", *SMALL, "--line=dsv41"))
    assert status == 0 and "low      decode prose x1" in out
    assert "steps of the image that are off: 2 " in out
