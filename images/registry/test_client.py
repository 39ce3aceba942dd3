"""The client against a real registry that fails in every way a registry fails."""

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.registry import client, transport
from images.registry.client import INDEX, MANIFEST, Registry, fallback_tag
from images.registry.descriptor import Descriptor
from images.registry.errors import RegistryError
from images.registry.transport import TRIES
from tests.engine.synthetic import noise
from tests.registry_faults import proxy as fault
from tests.registry_faults.proxy import Faulty

NAME = "moet/line"
OCTETS = "application/octet-stream"


def a_blob(seed: int, size: int = 300_000) -> tuple[Descriptor, bytes]:
    data = noise(seed, size)
    return Descriptor.of(OCTETS, data), data


def a_manifest(config: Descriptor, subject: Descriptor | None = None, **more: object) -> bytes:
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.document(), "layers": [], **more}
    return json.dumps(document | ({"subject": subject.document()} if subject else {})).encode()


def pushed(registry: Registry, seed: int, tag: str) -> Descriptor:
    config, data = a_blob(seed, 1000)
    registry.push_blob(NAME, config, data)
    return registry.push_manifest(NAME, tag, MANIFEST, a_manifest(config))


def read(registry: Registry, descriptor: Descriptor) -> bytes:
    return b"".join(registry.blob(NAME, descriptor))


def refer(registry: Registry, subject: Descriptor, number: int) -> Descriptor:
    config = Descriptor.of(OCTETS, b"{}")
    registry.push_blob(NAME, config, b"{}")
    data = a_manifest(config, subject, artifactType="a/b", annotations={"number": str(number)})
    made = Descriptor.of(MANIFEST, data)
    entry = Descriptor(MANIFEST, made.digest, made.size, {"number": str(number)}, "a/b")
    registry.push_referrer(NAME, subject.digest, data, entry)
    return entry


def test_nothing_is_there(registry: Registry) -> None:
    assert registry.tags("moet/nothing") == []
    assert registry.resolve("moet/nothing", "r1") is None
    assert registry.referrers("moet/nothing", "sha256:" + "0" * 64) == []
    with pytest.raises(RegistryError, match="nothing:r1: there is no such thing in the registry: check the name"):
        registry.manifest("moet/nothing", "r1")


def test_there_and_back(registry: Registry, proxy: Faulty, tmp_path: Path) -> None:
    blob, data = a_blob(1, 3_000_000)
    path = tmp_path / "blob"
    path.write_bytes(data)
    seen: list[int] = []
    assert registry.push_blob(NAME, blob, path, seen.append)
    assert sum(seen) == len(data)
    seen.clear()
    assert not registry.push_blob(NAME, blob, path, seen.append)
    assert sum(seen) == len(data)
    assert proxy.count("PUT", "/uploads/") == 1
    assert read(registry, blob) == data
    manifest = a_manifest(blob)
    descriptor = registry.push_manifest(NAME, "there-and-back", MANIFEST, manifest)
    assert registry.manifest(NAME, "there-and-back") == (descriptor, manifest)
    assert registry.manifest(NAME, descriptor.digest) == (descriptor, manifest)
    assert "there-and-back" in registry.tags(NAME)


def test_an_empty_blob(registry: Registry) -> None:
    blob = Descriptor.of(OCTETS, b"")
    registry.push_blob(NAME, blob, b"")
    assert read(registry, blob) == b""


def test_many_tags_come_in_pages(registry: Registry, proxy: Faulty) -> None:
    names = ["a", "b"]
    first = {"Link": f'</v2/{NAME}/tags/list?n=1000&last=a>; rel="next"'}

    def page(request: fault.Request, _forward: fault.Forward) -> fault.Answer:
        name = "b" if "last=a" in request.path else "a"
        headers = [("Content-Type", "application/json"), *(first.items() if name == "a" else ())]
        return fault.Answer(200, headers, json.dumps({"name": NAME, "tags": [name]}).encode())

    proxy.add(fault.Fault(page), "GET", "/tags/list")
    assert registry.tags(NAME) == names
    proxy.clear()
    first["Link"] = f'</v2/{NAME}/tags/list?n=1000>; rel="next"'
    proxy.add(fault.Fault(page), "GET", "/tags/list")
    with pytest.raises(RegistryError, match="has no end of pages"):
        registry.tags(NAME)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_fails_a_few_times(registry: Registry, proxy: Faulty, status: int) -> None:
    blob, data = a_blob(2)
    name = f"moet/few{status}"
    for number, (method, path) in enumerate((("HEAD", "/blobs/"), ("POST", "/uploads/"), ("PUT", "/uploads/"))):
        proxy.add(fault.answers(status), method, path, times=TRIES - 1)
        assert registry.push_blob(name, *a_blob(100 + number))
        assert proxy.count(method, path) >= TRIES
    registry.push_blob(name, blob, data)
    proxy.add(fault.answers(status), "PUT", "/manifests/", times=TRIES - 1)
    registry.push_manifest(name, "r1", MANIFEST, a_manifest(blob))
    proxy.add(fault.answers(status), "GET", times=TRIES - 1)
    assert b"".join(registry.blob(name, blob)) == data
    proxy.add(fault.answers(status), "GET", times=TRIES - 1)
    assert registry.resolve(name, "r1") is not None


@pytest.mark.parametrize(
    ("method", "path", "request_line"),
    [
        ("HEAD", "/blobs/sha256:", "HEAD http://{}/v2/moet/five/blobs/{} answered 500"),
        ("POST", "/uploads/", "POST http://{}/v2/moet/five/blobs/uploads/ answered 500"),
        ("PUT", "/uploads/", "PUT http://{}/v2/moet/five/blobs/uploads/"),
    ],
)
def test_fails_for_good(registry: Registry, proxy: Faulty, method: str, path: str, request_line: str) -> None:
    blob, data = a_blob(3)
    proxy.add(fault.answers(500), method, path)
    with pytest.raises(RegistryError) as caught:
        registry.push_blob("moet/five", blob, data)
    message = str(caught.value)
    where = f"blob {blob.digest} of {proxy.address}/moet/five"
    assert message.startswith(f"{where}: the registry fails: run this again later, or see the registry's log (")
    assert request_line.format(proxy.address, blob.digest) in message
    assert message.endswith(f"answered 500 UNKNOWN: a fault of a test); tried {TRIES} times") or method == "HEAD"
    assert message.endswith(f"tried {TRIES} times") and message.count("tried") == 1
    assert proxy.count(method, path) == TRIES


def test_a_slow_registry(registry: Registry, proxy: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, data = a_blob(22)
    proxy.add(fault.waits(0.2), times=4)
    registry.push_blob(NAME, blob, data)
    assert read(registry, blob) == data
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", (5, 0.2))
    proxy.add(fault.waits(1), "GET")
    with pytest.raises(RegistryError, match=rf"did not answer in time: check it and run this .*{TRIES} times$"):
        registry.tags(NAME)


def test_a_registry_that_leads_in_circles(registry: Registry, proxy: Faulty) -> None:
    proxy.add(fault.answers(307, headers={"Location": f"/v2/{NAME}/tags/list"}), "GET", "/tags/list")
    with pytest.raises(RegistryError, match="sends us round in circles"):
        registry.tags(NAME)


def test_a_refusal_that_is_a_trap(registry: Registry, proxy: Faulty) -> None:
    for body in (b"[" * 5000, b"\x1b[2J\xff" * 900, b'{"errors": [{"code": "\\u001b[2J", "message": {"a": 1}}]}'):
        proxy.clear()
        proxy.add(fault.gives(fault.Answer(403, [], body)), "GET", "/tags/list")
        with pytest.raises(RegistryError, match="no right to do this there") as caught:
            registry.tags(NAME)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 600


def test_a_manifest_that_is_refused_for_good(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(4)
    registry.push_blob(NAME, blob, data)
    proxy.add(fault.answers(500), "PUT", "/manifests/")
    with pytest.raises(RegistryError, match=rf"moet/line:refused: the registry fails.*tried {TRIES} times$"):
        registry.push_manifest(NAME, "refused", MANIFEST, a_manifest(blob))
    assert registry.resolve(NAME, "refused") is None


def test_the_line_is_cut_in_an_upload(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(5, 5_000_000)
    seen: list[int] = []
    proxy.add(fault.cuts_request(1_000_000), "PUT", "/uploads/", times=2)
    assert registry.push_blob(NAME, blob, data, seen.append)
    assert sum(seen) == len(data) and min(seen) <= 0
    assert read(registry, blob) == data


def test_the_line_is_cut_in_every_upload(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(6, 5_000_000)
    proxy.add(fault.cuts_request(1_000_000), "PUT", "/uploads/")
    with pytest.raises(RegistryError, match=r"the line was cut: run this again, what is there already is kept \(PUT "):
        registry.push_blob(NAME, blob, data)
    proxy.clear()
    assert registry.push_blob(NAME, blob, data)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/uploads/"), ("PUT", "/manifests/"), ("POST", "/uploads/")])
def test_the_answer_is_lost(registry: Registry, proxy: Faulty, method: str, path: str) -> None:
    blob, data = a_blob(7)
    name = f"moet/lost{method.lower()}{len(path)}"
    proxy.add(fault.loses_answer(), method, path, times=2)
    registry.push_blob(name, blob, data)
    descriptor = registry.push_manifest(name, "r1", MANIFEST, a_manifest(blob))
    assert registry.resolve(name, "r1") == descriptor


def test_the_line_is_cut_in_a_download(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(8, 4_000_000)
    registry.push_blob(NAME, blob, data)
    proxy.add(fault.cuts_answer(1_500_000), "GET", "/blobs/", times=2)
    assert read(registry, blob) == data
    ranges = [one.headers.get("Range") for one in proxy.requests if one.method == "GET" and "/blobs/" in one.path]
    assert ranges == [None, "bytes=1048576-", "bytes=2097152-"]


def test_the_line_is_cut_in_every_download(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(9)
    registry.push_blob(NAME, blob, data)
    proxy.add(fault.cuts_answer(0), "GET", "/blobs/")
    with pytest.raises(RegistryError, match=rf"blob {blob.digest} .*the line was cut.*tried {TRIES} times$"):
        read(registry, blob)


def test_a_blob_cut_short_where_it_is_stored(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(10)
    registry.push_blob(NAME, blob, data)
    proxy.add(fault.alters_answer(fault.halves), "GET", "/blobs/", times=1)
    proxy.add(fault.answers(416), "GET", "/blobs/")
    with pytest.raises(RegistryError, match=f"150000 bytes arrived, {blob.size} were expected"):
        read(registry, blob)


@pytest.mark.parametrize(
    ("change", "message"),
    [(fault.flips, "the registry sent bytes with digest sha256:"), (fault.doubles, "is longer than the 300000 bytes")],
)
def test_other_bytes(registry: Registry, proxy: Faulty, change: Callable[[bytes], bytes], message: str) -> None:
    blob, data = a_blob(11)
    registry.push_blob(NAME, blob, data)
    proxy.add(fault.alters_answer(change), "GET", "/blobs/")
    given: list[bytes] = []
    with pytest.raises(RegistryError, match=message):
        given.extend(registry.blob(NAME, blob))
    assert len(b"".join(given)) < len(data), "whoever reads to the end must have been told"


def test_a_blob_of_another_size_is_not_taken_for_the_blob(registry: Registry, proxy: Faulty) -> None:
    blob, data = a_blob(12)
    proxy.add(fault.answers(200), "HEAD", "/blobs/")
    with pytest.raises(RegistryError, match=r"has \d+ bytes in the registry, 300000 were expected"):
        registry.push_blob(NAME, blob, data)


def test_another_manifest_than_the_digest_says(registry: Registry, proxy: Faulty) -> None:
    one = pushed(registry, 13, "other")
    proxy.add(fault.alters_answer(lambda body: body + b" "), "GET", "/manifests/")
    for reference in ("other", one.digest):
        with pytest.raises(RegistryError, match=rf"digest sha256:[0-9a-f]+, {one.digest} was expected; do not use it"):
            registry.manifest(NAME, reference)


def test_a_manifest_that_is_none(registry: Registry, proxy: Faulty) -> None:
    for body in (b"", b"<html>", b"[]", b'{"mediaType": 1}', b"[" * 100_000):
        proxy.clear()
        headers = {"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"}
        proxy.add(fault.gives(fault.Answer(200, [*headers.items()], body)), "GET", "/manifests/")
        with pytest.raises(RegistryError, match=r"no JSON object|is no manifest"):
            registry.manifest(NAME, "none")


def test_a_manifest_without_end(registry: Registry, proxy: Faulty) -> None:
    pushed(registry, 21, "endless")
    proxy.add(fault.alters_answer(lambda _: b" " * (9 << 20)), "GET", "/manifests/")
    with pytest.raises(RegistryError, match="is longer than 8 MiB, which no manifest is"):
        registry.manifest(NAME, "endless")


def test_a_registry_that_calls_it_otherwise(registry: Registry, proxy: Faulty) -> None:
    wrong = "sha256:" + "1" * 64
    blob, data = a_blob(14)
    proxy.add(fault.claims(wrong), "PUT", "/uploads/", times=1)
    with pytest.raises(RegistryError, match=f"the registry calls it {wrong}"):
        registry.push_blob("moet/otherwise", blob, data)
    proxy.add(fault.claims(wrong), "PUT", "/manifests/", times=1)
    registry.push_blob("moet/otherwise", blob, data)
    with pytest.raises(RegistryError, match=f"the registry holds {wrong}, sha256:[0-9a-f]+ was pushed"):
        registry.push_manifest("moet/otherwise", "r1", MANIFEST, a_manifest(blob))


def test_bytes_that_are_not_the_digests(registry: Registry, tmp_path: Path) -> None:
    blob, data = a_blob(15)
    path = tmp_path / "blob"
    path.write_bytes(fault.flips(data))
    with pytest.raises(RegistryError, match="the bytes that arrived do not have the digest"):
        registry.push_blob(NAME, blob, path)
    path.write_bytes(data[:-1])
    with pytest.raises(RegistryError, match="has 299999 bytes here, 300000 were expected; build the layout again"):
        registry.push_blob(NAME, blob, path)


def test_refused_with_a_reason(registry: Registry, proxy: Faulty) -> None:
    for status, code, advice in (
        (403, "DENIED", "no right to do this there"),
        (405, "UNSUPPORTED", "may be a read-only mirror"),
        (413, "SIZE_INVALID", "too large for the registry"),
        (418, "TEAPOT", "an answer that is not known"),
    ):
        proxy.clear()
        proxy.add(fault.answers(status, code), "POST")
        with pytest.raises(RegistryError, match=f"{advice}.*answered {status} {code}: a fault of a test"):
            registry.push_blob(NAME, *a_blob(16))
        assert proxy.count("POST") == 1


@pytest.mark.parametrize("api", [False, True])
def test_referrers(registry: Registry, proxy: Faulty, api: bool) -> None:
    proxy.referrers_api = api
    subject = pushed(registry, 17 + api, "referred")
    one, two = refer(registry, subject, 1), refer(registry, subject, 2)
    refer(registry, subject, 2)
    assert registry.referrers(NAME, subject.digest) == [one, two]
    assert registry.referrers(NAME, subject.digest, "a/b") == [one, two]
    assert registry.referrers(NAME, subject.digest, "c/d") == []
    tags = [tag for tag in registry.tags(NAME) if tag.startswith(fallback_tag(subject.digest))]
    assert len(tags) == (0 if api else 3)
    # What has no tag is taken by a garbage collection.
    assert api or {registry.manifest(NAME, tag)[0].digest for tag in tags} > {one.digest, two.digest}


def test_referrers_of_others_stay_as_they_are(registry: Registry) -> None:
    subject = pushed(registry, 19, "others")
    theirs = refer(registry, subject, 1).document() | {"platform": {"os": "linux", "architecture": "x"}, "extra": [1]}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [theirs], "annotations": {"by": "others"}}
    tag = fallback_tag(subject.digest)
    registry.push_manifest(NAME, tag, INDEX, json.dumps(index).encode())
    ours = refer(registry, subject, 2)
    merged = json.loads(registry.manifest(NAME, tag)[1])
    assert merged == index | {"manifests": [theirs, ours.document()]}


def test_two_write_the_list_of_referrers_at_once(
    registry: Registry, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other one writes between our reading and our writing overwrites ours, or ours theirs: both must stay."""
    written, mine = threading.Barrier(2, timeout=120), threading.local()

    def settle(_seconds: float) -> None:
        if not hasattr(mine, "waited"):
            mine.waited = True
            written.wait()

    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=settle))
    subject = pushed(registry, 20, "at-once")
    tag = fallback_tag(subject.digest)
    barrier = threading.Barrier(2, timeout=120)
    proxy.add(fault.calls(lambda _: barrier.wait()), "PUT", f"/manifests/{tag}", times=2)
    entries: list[Descriptor] = []

    def write(number: int) -> None:
        with Registry(proxy.address, plain_http=True) as own:
            entries.append(refer(own, subject, number))

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = registry.referrers(NAME, subject.digest)
    assert len(found) == 2 and {one.digest for one in found} == {one.digest for one in entries}


def test_a_list_of_referrers_that_is_none(registry: Registry, proxy: Faulty) -> None:
    proxy.add(fault.answers(404), "GET", "/referrers/")
    broken: list[object] = [{}, [1], [{"mediaType": "a", "digest": "b", "size": 1}]]
    for listed in broken:
        answer = fault.Answer(200, [("Content-Type", INDEX)], json.dumps({"manifests": listed}).encode())
        proxy.add(fault.gives(answer), "GET", "/manifests/", times=1)
        with pytest.raises(RegistryError, match=r"that is no list|where OCI puts a descriptor|without a type"):
            registry.referrers(NAME, "sha256:" + "2" * 64)


def test_bad_names(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="'Moet' is not an image name"):
        registry.tags("Moet")
    with pytest.raises(RegistryError, match=r"'\.\./x' is neither a tag nor a digest"):
        registry.manifest(NAME, "../x")
    with pytest.raises(RegistryError, match="'a b' is not a registry; expected HOST or HOST:PORT"):
        Registry("a b")
    with pytest.raises(RegistryError, match="is no digest"):
        registry.referrers(NAME, "r1")
