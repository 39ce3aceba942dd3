"""What one machine built, another takes: two folders, two output bases, one HTTP cache between them; and its faults."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import elsewhere
from tests.engine import scratch
from tests.remote_cache import server
from tests.remote_cache.server import Server

ROOT = Path("bazelw").resolve().parent
DOCUMENTED = Path("docs/remote-cache.md").read_text()
# target=output path; the assembly of the image among them must not be cached.
WHOLE = dict(pair.split("=", 1) for pair in os.environ["TARGETS"].split())
FEW = dict(pair.split("=", 1) for pair in os.environ["FEW"].split())
NEVER_CACHED = {"OciImage"}

Digests = dict[str, dict[str, str]]


def build(cache: str, targets: dict[str, str], *options: str) -> tuple[Digests, list[dict[str, Any]]]:
    """Builds from nothing in another folder; returns the outputs' digests and Bazel's log of what it executed."""
    with elsewhere.elsewhere(ROOT, network=True) as made:
        log = made.folder.parent / "execution.json"
        caches = [f"--repository_cache={elsewhere.repository_cache()}", f"--remote_cache={cache}"]
        made.bazel("build", *caches, f"--execution_log_json_file={log}", *options, *targets)
        output = Path(made.bazel("info", "bazel-bin").strip())
        return {target: elsewhere.digests(output / path) for target, path in targets.items()}, list(spawns(log))


def spawns(log: Path) -> Iterator[dict[str, Any]]:
    """The actions of an execution log, which is JSON objects one after the other."""
    text = log.read_text()
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:]


def executed(found: list[dict[str, Any]]) -> set[str]:
    """Mnemonics of the actions that ran here."""
    return {one["mnemonic"] for one in found if not one.get("remoteCacheHit")}


@pytest.fixture(scope="module")
def beside() -> Iterator[Path]:
    with scratch.folder(scratch.roomy()) as folder:
        yield folder


@pytest.fixture
def cache(beside: Path) -> Iterator[Callable[[str], Server]]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(server.running(beside / name, DOCUMENTED))


def test_second_machine_builds_nothing(cache: Callable[[str], Server]) -> None:
    served = cache("whole")
    first, ran = build(served.write, WHOLE)
    assert {"WheelLayer", "OverlayLayer", "FileLayer", "PatchOverlay", "ImageManifest"} <= executed(ran)
    assert served.entries("ac") and served.entries("cas")
    filled = len(served.asked())
    second, ran = build(served.read, WHOLE, "--noremote_upload_local_results")
    assert second == first
    assert executed(ran) == NEVER_CACHED
    assert len([one for one in ran if one.get("remoteCacheHit")]) >= 8
    assert {(method, status) for method, _, status in served.asked()[filled:]} == {("GET", 200)}


def test_reader_cannot_write(cache: Callable[[str], Server]) -> None:
    served = cache("empty")
    build(served.read, FEW)
    assert served.entries("ac") + served.entries("cas") == []
    assert ("PUT", 403) in {(method, status) for method, _, status in served.asked()}


@pytest.fixture(scope="module")
def first(beside: Path) -> tuple[Path, Digests]:
    """A cache that FEW were built into, and their digests."""
    with server.running(beside / "first", DOCUMENTED) as served:
        return served.files, build(served.write, FEW)[0]


@pytest.fixture
def filled(
    first: tuple[Path, Digests], beside: Path, cache: Callable[[str], Server], request: pytest.FixtureRequest
) -> tuple[Server, Digests]:
    """A copy of it that a test may spoil."""
    name = str(abs(hash(request.node.name)))
    shutil.copytree(first[0], beside / name)
    return cache(name), first[1]


def test_server_that_dies_in_the_middle(first: tuple[Path, Digests]) -> None:
    files, expected = first
    found: list[Any] = []
    with server.running(files, DOCUMENTED) as served:
        building = threading.Thread(target=lambda: found.append(build(served.read, FEW)))
        building.start()
        while not served.asked() and building.is_alive():
            building.join(0.01)
        assert building.is_alive()
    building.join()
    assert found[0][0] == expected
    assert executed(found[0][1])


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        pytest.param("cas", lambda data: bytes(byte ^ 1 for byte in data[:64]) + data[64:], id="altered content"),
        pytest.param("cas", lambda data: data[: len(data) // 2], id="content cut short"),
        pytest.param("ac", lambda data: b"\xff" * len(data), id="actions of noise"),
    ],
)
def test_spoilt_entries_never_reach_the_result(
    kind: str, spoil: Callable[[bytes], bytes], filled: tuple[Server, Digests]
) -> None:
    served, expected = filled
    spoilt = [path for path in served.entries(kind) if path.stat().st_size > 1]
    assert spoilt
    for path in spoilt:
        path.write_bytes(spoil(path.read_bytes()))
    again, ran = build(served.read, FEW, "--noremote_upload_local_results")
    assert again == expected
    assert executed(ran) >= {"FileLayer", "PatchOverlay"}
