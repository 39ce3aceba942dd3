"""Killed anywhere and repeated, and two at once: current is the old or the new release, and the engine has it."""

import os
import subprocess
import sys

import pytest

from images.registry.client import Registry
from releases.rollback.state import State
from tests.engine.engines import loopback_registry
from tests.faults import killer
from tests.release.host import Host
from tests.release.toy import LINE, R0, R1, document

_POINTS = 12
# moet, but who finds another at work waits for it however busy the machine is.
_PATIENT = """
import sys
from releases.rollback import state
from tools.moet import main
state._WAIT_SECONDS = 300
sys.exit(main.main())
"""


def _remove(host: Host, tag: str) -> None:
    if host.docker.client.images.list(name=host.toy.entry(tag).image_id) or tag in host.tags():
        host.docker.client.images.remove(host.toy.entry(tag).image_id, force=True)


def _command(host: Host, way: str) -> list[str]:
    return host.from_registry("--to", R1) if way == "registry" else host.arguments("--to", R1, "--rebuild")


@pytest.mark.parametrize("way", ["registry", "rebuild"])
def test_killed_anywhere_and_repeated(host: Host, way: str) -> None:
    document(*host.from_registry("--to", R0))
    old = host.state.read_bytes()
    events = killer.events("tools.moet.main", _command(host, way))
    assert len(events) > _POINTS
    ends = set()
    # What a killed build left changes the next one's number of events: its last ones cannot be aimed at.
    for at in killer.spread(len(events), _POINTS):
        _remove(host, R1)
        host.state.write_bytes(old)
        outcome = killer.run(at, "tools.moet.main", _command(host, way))
        assert outcome.killed or (way == "rebuild" and outcome.status == 0), (at, outcome.errors)
        found = State.read(LINE)
        assert found.current
        ends.add(found.current.tag)
        if found.current.tag == R1:
            assert host.tags()[R1] == host.toy.entry(R1).image_id
        else:
            assert host.state.read_bytes() == old
        document(*_command(host, way))
        again = State.read(LINE)
        assert again.current and again.current.tag == R1
        assert [one.number for one in again.history] == [1, 2]
        assert host.tags() == {tag: host.toy.entry(tag).image_id for tag in (R0, R1)}
        assert [path for path in os.listdir(host.state.parent) if path.endswith(".json")] == [host.state.name]
    assert ends == {R0, R1} or (way == "rebuild" and ends == {R0})


def test_load_killed_anywhere_and_repeated(host: Host) -> None:
    image = host.toy.image(R1)
    command = ["image", "load", str(image.directory), "--host", host.docker.host]
    events = killer.events("tools.moet.main", command)
    for at in killer.spread(len(events), _POINTS):
        _remove(host, R1)
        assert killer.run(at, "tools.moet.main", command).killed
        # The engine may end what it was sent whole; half an image has no tag.
        assert host.tags() in ({}, {R1: image.config.digest})
        assert document(*command)["image_id"] == image.config.digest
        assert host.tags() == {R1: image.config.digest}


def test_push_killed_anywhere_and_repeated(host: Host) -> None:
    image = host.toy.image(R1)
    with loopback_registry() as address, Registry(address, plain_http=True) as registry:

        def command(repository: str) -> list[str]:
            return ["image", "push", str(image.directory), f"{address}/{repository}:r1", "--plain-http"]

        events = killer.events("tools.moet.main", command("whole"))
        for at in killer.spread(len(events), _POINTS):
            # One of its own: what another was sent is there already.
            name = f"killed/{at}"
            assert killer.run(at, "tools.moet.main", command(name)).killed
            found = registry.resolve(name, "r1")
            assert found is None or found.digest == image.manifest.digest
            assert document(*command(name))["manifest_digest"] == image.manifest.digest
            found = registry.resolve(name, "r1")
            assert found and found.digest == image.manifest.digest


def test_two_at_once_make_one_change(host: Host) -> None:
    command = [sys.executable, "-c", _PATIENT, *host.from_registry("--to", R1)]
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "PYTHONDONTWRITEBYTECODE": "1"}
    both = [
        subprocess.Popen(command, env={**os.environ, **path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert sorted(out.splitlines()[0] for out, _ in said) == [
        f"{R1} is current now; it was pulled by its digest",
        f"{R1} is current on this host already; it was in the engine",
    ]
    assert len(State.read(LINE).history) == 1
