"""From one release to another and back, as a person does it: a real engine, a real registry, and what goes wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from releases.rollback import state
from releases.rollback.state import State
from tests.engine.loading import load
from tests.engine.synthetic import make_layout
from tests.release.host import Host
from tests.release.toy import LINE, R0, R1, document, moet


def _current() -> str | None:
    found = State.read(LINE).current
    return found.tag if found else None


def _refused(host: Host, *arguments: str) -> str:
    """Runs a rollback that must fail and change nothing; returns its one line."""
    before = (host.state.read_bytes() if host.state.exists() else None, host.tags())
    status, out, err = moet(*arguments)
    assert status == 1 and out == ""
    (line,) = [one for one in err.splitlines() if one.startswith("moet image rollback: ")]
    assert (host.state.read_bytes() if host.state.exists() else None, host.tags()) == before
    return line


def test_forward_back_and_undo(host: Host) -> None:
    load(DockerEngine(host.docker.host), host.toy.image(R0), R0)
    first = document(*host.arguments("--to", R0))
    assert (first["what"], first["source"], first["before"], first["undo"]) == ("set", "engine", None, None)

    second = document(*host.from_registry("--to", "vllm0.33.0-r1"))
    assert (second["what"], second["source"], second["changed"]) == ("forward", "registry", True)
    assert second["schema"] == "moet.image-rollback.v1"
    assert second["after"] == {
        "tag": R1,
        "digest": host.toy.entry(R1).digest,
        "image_id": host.toy.entry(R1).image_id,
        "engine": "docker",
    }
    assert host.tags() == {R0: host.toy.entry(R0).image_id, R1: host.toy.entry(R1).image_id}

    third = document(*host.arguments())
    assert (third["what"], third["source"]) == ("rollback", "engine")
    assert third["why"] == f"CHANGELOG.md names it as the way back from {R1}"
    assert _current() == R0

    for tag in (R1, R0):
        assert document(*host.arguments("--undo"))["after"]["tag"] == tag
        assert _current() == tag
    assert [(one.number, one.what) for one in State.read(LINE).history] == [
        (1, "set"),
        (2, "forward"),
        (3, "rollback"),
        (4, "undo"),
        (5, "undo"),
    ]
    assert host.tags() == {R0: host.toy.entry(R0).image_id, R1: host.toy.entry(R1).image_id}


def test_says_what_a_switch_would_do_first_and_how_to_undo_last(host: Host) -> None:
    moet(*host.from_registry("--to", R1))
    status, out, err = moet(*host.from_registry())
    assert status == 0
    assert f"{LINE}: {R1} -> {R0}" in err
    assert f"a switch instead: -e VLLM_MOET_TIERS=0 with {R1} is without step 1 tiers" in err
    assert f"step 2 next is off in {R1} unless VLLM_MOET_NEXT is set" in err
    assert out.splitlines()[-1] == f"back to {R1}: moet image rollback {LINE} --undo"
    result = document(*host.arguments("--to", R1))
    assert result["switches"] == []
    assert result["beyond_switches"] == [f"step 1 tiers is only in {R1}", f"step 2 next is only in {R1}"]


def test_repeated_it_changes_nothing(host: Host) -> None:
    document(*host.from_registry("--to", R1))
    before = host.state.read_bytes()
    again = document(*host.from_registry("--to", R1))
    assert (again["changed"], again["source"]) == (False, "engine")
    host.docker.client.images.remove(host.toy.entry(R1).image_id, force=True)
    assert document(*host.from_registry("--to", R1))["source"] == "registry"
    assert host.state.read_bytes() == before and R1 in host.tags()


def test_an_image_without_its_tag_gets_it_back(host: Host) -> None:
    load(DockerEngine(host.docker.host), host.toy.image(R1), "kept:aside")
    assert document(*host.arguments("--to", R1))["source"] == "engine"
    assert host.tags() == {"kept:aside": host.toy.entry(R1).image_id, R1: host.toy.entry(R1).image_id}


def test_a_dry_run_does_nothing(host: Host) -> None:
    result = document(*host.from_registry("--to", R1, "--dry-run"))
    assert (result["dry_run"], result["source"], result["after"]["tag"]) == (True, None, R1)
    status, out, _ = moet(*host.from_registry("--to", R1, "--dry-run"))
    assert status == 0 and f"it would be pulled from {host.registry}" in out
    assert host.tags() == {} and not host.state.parent.exists()


def test_built_from_its_commit_where_nobody_has_it(host: Host) -> None:
    assert document(*host.arguments("--to", R1))["source"] == "rebuild"
    assert document(*host.from_registry("--rebuild"))["source"] == "rebuild"
    assert host.tags() == {R0: host.toy.entry(R0).image_id, R1: host.toy.entry(R1).image_id}


def test_a_build_that_is_another_image_is_refused(host: Host) -> None:
    """The CHANGELOG was altered: neither a registry nor the commit gives what it says."""
    wrong = "sha256:" + "5" * 64
    host.toy.rewrite(R1, digest=wrong)
    line = _refused(host, *host.from_registry("--to", R1))
    assert f"{host.registry}@{wrong} was not pulled: the registry has no such manifest" in line
    assert f"builds {host.toy.image(R1).manifest.digest} here, CHANGELOG.md says {wrong}" in line


def test_nobody_has_it(host: Host) -> None:
    moet(*host.from_registry("--to", R1))
    host.toy.rebuild_is_gone()
    missing = host.registry + "-not"
    line = _refused(host, *host.arguments("--registry", missing, "--plain-http"))
    assert line.startswith(f"moet image rollback: {R0} cannot be had: docker ")
    assert f"{missing}@{host.toy.entry(R0).digest} was not pulled: the registry has no such manifest" in line
    assert "its build: bazel " in line
    assert "Nothing was changed; name a registry that has it with --registry HOST/NAME" in line
    assert _current() == R1


@pytest.mark.parametrize(
    ("status", "cut", "words"),
    [(200, 0, ""), (500, 0, "500 Internal Server Error"), (200, 100, "unexpected EOF")],
    ids=["another image", "500", "cut"],
)
def test_a_registry_that_does_not_serve_the_digest(host: Host, status: int, cut: int, words: str) -> None:
    other = host.toy.image(R0).manifest.path.read_bytes()
    host.toy.rebuild_is_gone()
    with _lying_registry(other, status, cut) as address:
        line = _refused(host, *host.arguments("--to", R1, "--registry", f"{address}/moet/toy", "--plain-http"))
    assert f"{address}/moet/toy@{host.toy.entry(R1).digest} was not pulled" in line and words in line
    assert _current() is None


def test_a_tag_that_points_elsewhere_stays_there(host: Host, tmp_path: Path) -> None:
    moet(*host.from_registry("--to", R1))
    other = layout.read(make_layout(tmp_path / "other", "other:1", [{"a": b"1"}]))
    load(DockerEngine(host.docker.host), other, "other:1")
    host.docker.client.images.get("other:1").tag("toy", "vllm0.33.0-r0")
    line = _refused(host, *host.from_registry())
    assert f"{R0} is {other.config.digest} in docker" in line
    assert f"the release is {host.toy.entry(R0).image_id}: a tag is never moved" in line
    assert f"docker tag {R0} OTHER:NAME; docker rmi {R0}" in line
    host.docker.client.images.get(R0).tag("put", "aside")
    host.docker.client.images.remove(R0)
    assert document(*host.from_registry())["after"]["tag"] == R0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), f"no release is recorded as current on this host; name the one to go to, for example --to {R0}"),
        (("--undo",), "nothing was changed on this host yet"),
        (("--to", "toy:vllm0.33.0-r7"), f"toy:vllm0.33.0-r7: no release in CHANGELOG.md; it has {R1}, {R0}"),
        (("--to", "toy:vllm0.33.0-r1-dev"), "is no release's tag"),
        (("--to", "../../x"), "is no release's tag"),
        (("--to", "dsv41:vllm0.33.0-r1"), "is of the line dsv41; expected a release of toy"),
        (("--to", R1, "--registry", "toy"), "expected HOST/NAME"),
        (("--to", R1, "--key", "/no/key"), "--key needs --registry"),
    ],
)
def test_what_cannot_be_gone_to(host: Host, arguments: tuple[str, ...], words: str) -> None:
    host.toy.rebuild_is_gone()
    assert words in _refused(host, *host.arguments(*arguments))


def test_a_first_release_has_no_way_back(host: Host) -> None:
    moet(*host.from_registry("--to", R0))
    assert f"{R0}: CHANGELOG.md names no release to go back to" in _refused(host, *host.arguments())
    assert "nothing was current before change 1" in _refused(host, *host.arguments("--undo"))


def test_a_line_that_is_none(host: Host) -> None:
    for name in ("other", "../toy", ""):
        status, _, err = moet("image", "rollback", name, "--tree", str(host.toy.root), "--host", host.docker.host)
        assert status == 1 and err == f"moet image rollback: {name!r} is no line with a release; there is: toy\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is no state of moet's"), ('{"schema": "moet.state.v2"}', "newer than moet.state.v1")],
)
def test_a_state_that_cannot_be_read_is_left(host: Host, text: str, words: str) -> None:
    host.state.parent.mkdir(parents=True)
    host.state.write_text(text)
    for more in (("--to", R1), (), ("--undo",)):
        assert words in _refused(host, *host.from_registry(*more))


def test_who_is_at_it_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_WAIT_SECONDS", 0.2)
    with state.locked(LINE, print):
        assert "held by process " in _refused(host, *host.from_registry("--to", R1))


def test_moet_behind_a_missing_record_still_goes_back(host: Host) -> None:
    moet(*host.from_registry("--to", R1))
    for path in (host.toy.root / "releases/records/toy/vllm0.33.0-r0").iterdir():
        path.write_bytes(b"{}")
    status, _, err = moet(*host.from_registry())
    assert status == 0 and "what switches would do instead is not known" in err
    assert _current() == R0


@contextmanager
def _lying_registry(manifest: bytes, status: int, cut: int) -> Iterator[str]:
    """A registry that answers `status` and has `manifest`, but its last `cut` bytes, under every name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            named = "/manifests/" in self.path
            body = manifest if named else b"{}"
            self.send_response(status if named else 200)
            self.send_header("Content-Type", "application/vnd.oci.image.manifest.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[: len(body) - cut] if named else body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
