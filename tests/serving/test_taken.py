"""What is taken or gone: the port, the container's name, the image; and two commands at once."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from serving.generations import store
from tests.release.toy import LINE, R0, R1
from tests.serving.operator import FIRST, OTHER, Operator


@contextmanager
def taken() -> Iterator[int]:
    """A port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


def test_port_on_a_first_up(operator: Operator) -> None:
    with taken() as port:
        refused = operator.run("up", LINE, "--set", f"PORT={port}")
        assert refused.status == 1 and "preflight: port" in refused.last, refused
        assert operator.server.generations == () and operator.containers() == {}
        outcome = operator.run("up", LINE, "--set", f"PORT={port}", "--no-preflight")
        assert outcome.status == 3 and f"127.0.0.1:{port}" in outcome.last, outcome
        assert "nothing serves" in outcome.last and operator.containers() == {}
    assert operator.run("up", LINE, FIRST).status == 0
    operator.serves(2)


def test_port_of_a_replacement(operator: Operator) -> None:
    assert operator.run("up", LINE, FIRST).status == 0
    with taken() as port:
        outcome = operator.run("up", LINE, "--set", f"PORT={port}", "--no-preflight")
        assert outcome.status == 1 and "generation 1 serves again" in outcome.last, outcome
    operator.serves(1)


def test_name_of_a_container_that_is_not_ours(operator: Operator) -> None:
    operator.host.docker.client.containers.create(R1, ["steps"], name=LINE)
    outcome = operator.run("up", LINE, "--no-preflight")
    assert outcome.status == 1 and f"docker rm -f {LINE}" in outcome.last, outcome
    assert operator.containers() == {LINE: "created"}
    operator.host.docker.client.containers.get(LINE).remove()
    assert operator.run("up", LINE, FIRST).status == 0
    operator.serves(1)


def test_image_deleted(operator: Operator) -> None:
    """What is served is not stopped for an image that cannot be had; one that can is had again."""
    for tag in (R0, R1):
        assert operator.run("up", LINE, f"--set=IMAGE={tag}", FIRST).status == 0
    # By its id, so that all of its tags go.
    images = operator.host.docker.client.images
    images.remove(str(images.get(R0).id), force=True)
    away = operator.host.toy.made.rename(operator.host.folder / "away")
    (before,) = operator.host.docker.client.containers.list()
    outcome = operator.run("rollback")
    assert outcome.status == 1 and R0 in outcome.last, outcome
    operator.serves(2)
    (after,) = operator.host.docker.client.containers.list()
    assert after.attrs["State"]["StartedAt"] == before.attrs["State"]["StartedAt"]
    away.rename(operator.host.toy.made)
    assert operator.run("rollback").status == 0
    operator.serves(3)


def test_image_deleted_under_the_server(operator: Operator) -> None:
    """Its container has the layers still, and starts again from them."""
    assert operator.run("up", LINE, f"--set=IMAGE={R0}", FIRST).status == 0
    operator.host.docker.client.images.remove(R0, force=True)
    operator.host.docker.client.containers.get(LINE).kill()
    outcome = operator.run("up")
    assert outcome.status == 0, outcome.errors
    operator.serves(1)


def test_two_ups_at_once(operator: Operator) -> None:
    both = [operator.wait(each) for each in [operator.begin_patient("up", LINE, FIRST) for _ in range(2)]]
    assert [one.status for one in both] == [0, 0], both
    assert sorted("already" in one.output for one in both) == [False, True], both
    operator.serves(1)
    assert len(operator.server.generations) == 1


def test_another_up_while_one_takes_long(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_WAIT_SECONDS", 0.5)
    operator.host.behave(hang_at="weights")
    first = operator.begin("up", LINE, FIRST)
    operator.until(lambda: "running" in operator.containers().values())
    second = operator.run("up", LINE, OTHER)
    assert second.status == 1 and f"held by process {first.pid}" in second.last, second
    assert operator.run("status").status not in (0, 2)
    operator.host.behave()
    assert operator.wait(first).status == 0
    operator.serves(1)
