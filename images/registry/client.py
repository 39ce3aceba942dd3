"""A client of the OCI distribution specification v1.1: manifests, blobs, tags, referrers."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urljoin

import requests

from images.oci.names import REPOSITORY, TAG
from images.registry import faults
from images.registry import transport as transport_
from images.registry.descriptor import DIGEST, Descriptor, digest_of
from images.registry.errors import RegistryError
from images.registry.transport import Transport, limited

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# What Docker pushed before OCI; images that are not ours may still be of it.
_DOCKER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ACCEPT = ", ".join((MANIFEST, INDEX, *_DOCKER))
_MANIFEST_BYTES = 8 << 20
_CHUNK = 1 << 20
_PAGES = 1000
# How long after writing a list of referrers it is looked at again.
SETTLE_SECONDS = 0.5
_ADDRESS = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")

Advance = Callable[[int], None]
_T = TypeVar("_T")


def nobody(_: int) -> None:
    """Progress that nobody sees."""


class Registry:
    """One registry at `address`, HOST or HOST:PORT. Whatever it sends is held against its digest.

    Args:
        address: HOST or HOST:PORT.
        plain_http: allow plain HTTP and certificates that do not verify.
        authfile: credentials as skopeo login writes them; None: where docker, podman and skopeo keep theirs.

    Raises:
        RegistryError: from the constructor, when the address is none or a CA file cannot be read; from every method,
            when the registry refuses, is not reached, or sends something else than it should.
    """

    def __init__(self, address: str, plain_http: bool = False, authfile: Path | None = None) -> None:
        if not _ADDRESS.fullmatch(address):
            raise RegistryError(f"{address!r} is not a registry; expected HOST or HOST:PORT")
        self.address = address
        self._transport = Transport(address, plain_http, authfile)

    def close(self) -> None:
        """Gives the connections back."""
        self._transport.close()

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, name: str, reference: str) -> Descriptor | None:
        """The descriptor of the manifest that a tag or digest stands for, None where there is none."""
        found = self._manifest(name, reference, missing=True)
        return found[0] if found else None

    def manifest(self, name: str, reference: str) -> tuple[Descriptor, bytes]:
        """The manifest that a tag or digest stands for, and its bytes."""
        found = self._manifest(name, reference, missing=False)
        assert found is not None
        return found

    def blob(self, name: str, descriptor: Descriptor) -> Iterator[bytes]:
        """The bytes of a blob. Size and digest are checked before the last of them is given away.

        A line that is cut is taken up again where it was cut.
        """
        what = f"blob {descriptor.digest} of {self._named(name)}"
        if not DIGEST.fullmatch(descriptor.digest):
            raise RegistryError(f"{what}: has no sha256 digest")
        digest = hashlib.new(descriptor.digest.partition(":")[0])
        arrived, held = 0, b""
        for attempt in range(1, transport_.TRIES + 1):
            before = arrived
            try:
                for chunk in self._download(name, descriptor, what, arrived):
                    arrived += len(chunk)
                    digest.update(chunk)
                    if arrived > descriptor.size:
                        raise RegistryError(f"{what}: is longer than the {descriptor.size} bytes that it should have")
                    # A reader that stops at the last byte must not have it before the check.
                    if held:
                        yield held
                    held = chunk
            except requests.RequestException as error:
                if attempt == transport_.TRIES:
                    request = f"GET /v2/{name}/blobs/{descriptor.digest}"
                    raise faults.broken(error, self.address, what, request, attempt) from None
            if arrived == descriptor.size:
                break
            if arrived == before:
                time.sleep(transport_.BACKOFF_SECONDS * attempt)
        if arrived != descriptor.size:
            raise RegistryError(
                f"{what}: {arrived} bytes arrived, {descriptor.size} were expected; the line or the registry cuts it,"
                " run this again"
            )
        found = f"{digest.name}:{digest.hexdigest()}"
        if found != descriptor.digest:
            raise RegistryError(
                f"{what}: the registry sent bytes with digest {found}; its storage is damaged, push the image again"
            )
        if held:
            yield held

    def tags(self, name: str) -> list[str]:
        """All tags of a repository, in the registry's order; none where it is unknown."""
        what = f"tags of {self._named(name)}"
        return [
            str(tag)
            for page in self._pages(name, f"/v2/{name}/tags/list?n=1000", what, "")
            for tag in _member(page, "tags", what)
        ]

    def referrers(self, name: str, digest: str, artifact_type: str | None = None) -> list[Descriptor]:
        """What says that it refers to the manifest `digest`, of one type or of all.

        From the registry's referrers API, or the tag sha256-<hex> that stands in for it.
        """
        what = f"referrers of {self._named(name)}@{digest}"
        if not DIGEST.fullmatch(digest):
            raise RegistryError(f"{what}: is no digest; expected sha256:<64 hex digits>")
        pages = list(self._pages(name, f"/v2/{name}/referrers/{digest}", what, INDEX))
        if not pages and (found := self._manifest(name, fallback_tag(digest), missing=True)):
            pages = [_json(found[1], what)]
        entries = [entry for page in pages for entry in _member(page, "manifests", what)]
        descriptors = [Descriptor.read(entry, what) for entry in entries]
        return [one for one in descriptors if artifact_type in (None, one.artifact_type)]

    def has_blob(self, name: str, descriptor: Descriptor) -> bool:
        """Whether the repository has a blob, of the size that it should have."""
        what = f"blob {descriptor.digest} of {self._named(name)}"
        answer = self._send("HEAD", f"/v2/{name}/blobs/{descriptor.digest}", what, name, accepted=(200, 404))
        if answer.status_code == 404:
            return False
        size = answer.headers.get("Content-Length", str(descriptor.size))
        if size != str(descriptor.size):
            expected = f"{descriptor.size} were expected; its storage is damaged: delete the blob there, push again"
            raise RegistryError(f"{what}: has {size} bytes in the registry, {expected}")
        return True

    def push_blob(
        self, name: str, descriptor: Descriptor, data: bytes | Path, progress: Advance = nobody
    ) -> bool:
        """Makes the repository have a blob; returns whether it had to be sent.

        `progress` is called with the bytes that went over the line, negative where they have to go again.
        """
        what = f"blob {descriptor.digest} of {self._named(name)}"
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        if size != descriptor.size:
            expected = f"{descriptor.size} were expected; build the layout again"
            raise RegistryError(f"{what}: has {size} bytes here, {expected}")
        body = _Body(data, size, progress)

        def send() -> bool:
            if self.has_blob(name, descriptor):
                body.rest()
                return False
            self._upload(name, descriptor, body, what)
            return True

        return self._repeated(send)

    def push_manifest(self, name: str, reference: str, media_type: str, data: bytes) -> Descriptor:
        """Puts a manifest under a tag or its digest, and checks that the registry has it with the digest it has here.

        A tag that is there moves: who must not move one asks resolve() first.
        """
        return self._push_manifest(name, reference, media_type, data)[0]

    def push_referrer(self, name: str, subject: str, data: bytes, entry: Descriptor) -> Descriptor:
        """Puts a manifest that refers to the manifest `subject` (a digest), and makes referrers() list it.

        Where the registry lacks the referrers API, `entry` is added to the tag that stands in for it; what others
        wrote there stays, and nothing stands there twice. It gets a tag of its own then, too.
        """
        pushed, taken = self._push_manifest(name, entry.digest, entry.media_type, data)
        if taken:
            return pushed
        if not self._has_referrers_api(name, subject):
            # docker-registry's garbage collection takes whatever has no tag, listed or not.
            own = f"{fallback_tag(subject)}.{entry.digest.partition(':')[2][:12]}"
            self._push_manifest(name, own, entry.media_type, data)
        if any(one.digest == entry.digest for one in self.referrers(name, subject)):
            return pushed
        what = f"referrers of {self._named(name)}@{subject}"
        tag = fallback_tag(subject)
        for _ in range(transport_.TRIES):
            found = self._manifest(name, tag, missing=True)
            index = _json(found[1], what) if found else {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
            index["manifests"] = [*_member(index, "manifests", what), entry.document()]
            self._push_manifest(name, tag, INDEX, json.dumps(index, separators=(",", ":")).encode())
            # Another client may have read before this was written, and write after it: a tag has no lock.
            time.sleep(SETTLE_SECONDS)
            if any(one.digest == entry.digest for one in self.referrers(name, subject)):
                return pushed
        raise RegistryError(f"{what}: others write {tag} all the time; run this again")

    def _repeated(self, action: Callable[[], _T]) -> _T:
        for attempt in range(1, transport_.TRIES + 1):
            try:
                return action()
            except RegistryError as error:
                if not error.again:
                    raise
                if attempt == transport_.TRIES:
                    raise RegistryError(f"{error}{faults.tried(attempt)}") from None
                time.sleep(transport_.BACKOFF_SECONDS * 2**attempt)
        raise AssertionError("never reached")

    def _has_referrers_api(self, name: str, digest: str) -> bool:
        pages = self._pages(name, f"/v2/{name}/referrers/{digest}", f"referrers of {self._named(name)}", INDEX)
        return next(pages, None) is not None

    def _named(self, name: str) -> str:
        if not REPOSITORY.fullmatch(name):
            raise RegistryError(
                f"{self.address}: {name!r} is not an image name; OCI allows lower-case letters and digits, single . _ -"
                " between them and / between components"
            )
        return f"{self.address}/{name}"

    def _manifest(self, name: str, reference: str, missing: bool) -> tuple[Descriptor, bytes] | None:
        by_digest = bool(DIGEST.fullmatch(reference))
        what = f"{self._named(name)}{'@' if by_digest else ':'}{reference}"
        if not by_digest and not TAG.fullmatch(reference):
            raise RegistryError(f"{what}: {reference!r} is neither a tag nor a digest")
        place = f"/v2/{name}/manifests/{reference}"
        accepted = (200, 404) if missing else (200,)
        answer = self._send("GET", place, what, name, accepted=accepted, headers={"Accept": _ACCEPT}, stream=True)
        if answer.status_code == 404:
            answer.close()
            return None
        data = self._small(answer, what)
        media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        stated = answer.headers.get("Docker-Content-Digest", "")
        wanted = reference if by_digest else stated if DIGEST.fullmatch(stated) else digest_of(data)
        found = digest_of(data, wanted)
        if found != wanted:
            raise RegistryError(
                f"{what}: the registry sent a manifest with digest {found}, {wanted} was expected; do not use it, push"
                " the image again"
            )
        if by_digest and stated and stated != reference and stated.startswith(reference.partition(":")[0]):
            raise RegistryError(f"{what}: the registry calls it {stated}; do not use it, see the registry's log")
        document = _json(data, what)
        kind = document.get("artifactType")
        stated_type = document.get("mediaType", media_type)
        if not isinstance(stated_type, str) or not isinstance(kind, str | None):
            raise RegistryError(f"{what}: is no manifest that OCI or Docker knows")
        return Descriptor(stated_type, found, len(data), artifact_type=kind), data

    def _push_manifest(self, name: str, reference: str, media_type: str, data: bytes) -> tuple[Descriptor, bool]:
        descriptor = Descriptor.of(media_type, data)
        by_digest = bool(DIGEST.fullmatch(reference))
        what = f"{self._named(name)}{'@' if by_digest else ':'}{reference}"
        if by_digest and reference != descriptor.digest:
            raise RegistryError(f"{what}: the manifest to push has the digest {descriptor.digest}")
        if not by_digest and not TAG.fullmatch(reference):
            raise RegistryError(f"{what}: {reference!r} is neither a tag nor a digest")
        place, headers = f"/v2/{name}/manifests/{reference}", {"Content-Type": media_type}
        answer = self._repeated(
            lambda: self._send("PUT", place, what, name, accepted=(201,), headers=headers, body=data, push=True)
        )
        stated = answer.headers.get("Docker-Content-Digest")
        # A registry that says nothing is asked.
        held = stated if stated is not None else getattr(self.resolve(name, reference), "digest", None)
        if held != descriptor.digest:
            holds = f"the registry holds {held or 'nothing'}, {descriptor.digest} was pushed"
            raise RegistryError(f"{what}: {holds}; see its log, then push again")
        return descriptor, "OCI-Subject" in answer.headers

    def _upload(self, name: str, descriptor: Descriptor, body: "_Body", what: str) -> None:
        start = self._send("POST", f"/v2/{name}/blobs/uploads/", what, name, accepted=(202,), push=True)
        place = start.headers.get("Location")
        if not place:
            raise RegistryError(f"{what}: {self.address} does not say where to send it; see the registry's log")
        place = urljoin(start.url, place)
        place += f"{'&' if '?' in place else '?'}digest={quote(descriptor.digest, safe='')}"
        headers = {"Content-Type": "application/octet-stream"}
        answer = self._send("PUT", place, what, name, accepted=(201,), headers=headers, body=body, push=True)
        stated = answer.headers.get("Docker-Content-Digest")
        if stated is not None and stated != descriptor.digest:
            raise RegistryError(f"{what}: the registry calls it {stated}; see its log, then push again")

    def _download(self, name: str, descriptor: Descriptor, what: str, start: int) -> Iterator[bytes]:
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        place = f"/v2/{name}/blobs/{descriptor.digest}"
        answer = self._send("GET", place, what, name, accepted=(200, 206, 416), headers=headers, stream=True)
        try:
            # A blob that is cut short where it is stored has nothing after its end.
            if answer.status_code == 416:
                return
            skip = start if answer.status_code == 200 else 0
            for chunk in answer.iter_content(_CHUNK):
                if rest := chunk[skip:]:
                    yield rest
                skip = max(0, skip - len(chunk))
        finally:
            answer.close()

    def _pages(self, name: str, place: str, what: str, media_type: str) -> Iterator[dict[str, Any]]:
        """The pages of a listing; none where the registry has no such thing, or answers with another type."""
        seen: set[str] = set()
        while place not in seen and len(seen) < _PAGES:
            seen.add(place)
            answer = self._send("GET", place, what, name, accepted=(200, 404, 405), stream=True)
            if answer.status_code != 200 or not answer.headers.get("Content-Type", "").startswith(media_type):
                answer.close()
                return
            yield _json(self._small(answer, what), what)
            following = answer.links.get("next", {}).get("url")
            if not following:
                return
            place = urljoin(answer.url, following)
        raise RegistryError(f"{what}: {self.address} has no end of pages; see the registry's log")

    def _small(self, answer: requests.Response, what: str) -> bytes:
        request = f"GET {answer.request.path_url}"
        try:
            data = limited(answer, _MANIFEST_BYTES)
        except requests.RequestException as error:
            raise faults.broken(error, self.address, what, request) from None
        if len(data) > _MANIFEST_BYTES:
            raise RegistryError(f"{what}: is longer than {_MANIFEST_BYTES >> 20} MiB, which no manifest is")
        return data

    def _send(
        self, method: str, place: str, what: str, name: str, *, push: bool = False, **options: Any
    ) -> requests.Response:
        scope = f"repository:{name}:{'pull,push' if push else 'pull'}"
        return self._transport.send(method, place, what, scope, **options)


class _Body:
    """What a request sends, in pieces, from its start each time; `progress` learns what really went."""

    def __init__(self, data: bytes | Path, size: int, progress: Advance) -> None:
        self._data = data
        self._size = size
        self._progress = progress
        self._sent = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        self._progress(-self._sent)
        self._sent = 0
        for chunk in self._chunks():
            yield chunk
            self._sent += len(chunk)
            self._progress(len(chunk))

    def _chunks(self) -> Iterator[bytes]:
        if isinstance(self._data, bytes):
            yield from (self._data[at : at + _CHUNK] for at in range(0, self._size, _CHUNK))
            return
        with self._data.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    def rest(self) -> None:
        """Counts as sent what need not be."""
        self._progress(self._size - self._sent)
        self._sent = self._size


def fallback_tag(digest: str) -> str:
    """The tag that lists a manifest's referrers where the registry lacks the API for it."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm}-{value}"


def _json(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RegistryError(f"{what}: the registry sent something that is no JSON object")
    return document


def _member(page: dict[str, Any], key: str, what: str) -> list[Any]:
    value = page.get(key)
    if not isinstance(value, list | None):
        raise RegistryError(f"{what}: the registry sent a {key!r} that is no list")
    return value or []
