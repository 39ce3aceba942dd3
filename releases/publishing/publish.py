"""Publishing releases: git tag, image, signed attestations; what is there already is left as it is.

Every step looks first and does what is missing, so that a publish that was interrupted anywhere is repeated.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from images.registry.client import Registry
from images.registry.descriptor import Descriptor
from images.registry.errors import RegistryError
from images.registry.push_image import TagTakenError, push_image
from releases.attestations import dsse, keys, referrers, verify
from releases.attestations.errors import AttestationError
from releases.attestations.statement import KINDS
from releases.known import Known
from releases.publishing.publish_release import Release
from releases.tag import Tag
from releases.tree.build import tidy
from releases.tree.git import Git
from releases.tree.released_image import released_image
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.files import lock

State = Literal["done", "there", "would be done"]
_WAIT_SECONDS = 6 * 3600


@dataclass(frozen=True)
class Step:
    """One step of a release's way into the registry: what it is, how it stands, and a detail."""

    name: str
    state: State
    detail: str


@dataclass
class Published:
    """A release and the steps that were taken."""

    tag: Tag
    digest: str
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Publisher:
    """Where to, and with what.

    Attributes:
        git: the tree's repository.
        registry: where to.
        name: the repository there; the release's tag without its line is the tag in it.
        key: file of the private key that signs.
        layouts: folders to take images from; none: Bazel builds.
        out: what goes on is shown here.
        dry_run: look, and do nothing.
        deep: read the layers back, too.
    """

    git: Git
    registry: Registry
    name: str
    key: Path
    layouts: Sequence[Path]
    out: Output
    dry_run: bool = False
    deep: bool = False

    def publish(self, known: Known, tags: Sequence[Tag]) -> list[Published]:
        """Publishes releases, in the order given. Another publish of this work tree is waited for.

        Raises UserError at the first step that cannot be done; what was done before stays, and is found by the next.
        """
        keys.private(self.key)
        with lock.exclusive(self.git.folder() / "moet" / "publish.lock", _WAIT_SECONDS, self.out.note):
            tidy(self.git)
            releases = [Release.read(known, self.git, tag) for tag in tags]
            return [self._publish(release) for release in releases]

    def missing(self, known: Known, line: str) -> list[Tag]:
        """The releases of a line that the registry lacks, or has without an attestation or a git tag; oldest first."""
        entries = [entry for entry in known.changelog.entries if entry.tag.line == line]
        return [entry.tag for entry in reversed(entries) if not self._complete(entry.tag, entry.digest)]

    def _complete(self, tag: Tag, digest: str) -> bool:
        if self.git.tag_commit(tag.git) is None or self.registry.resolve(self.name, tag.name) is None:
            return False
        attached = referrers.fetch(self.registry, self.name, digest)
        return set(KINDS) <= {attestation.predicate_type for attestation in attached}

    def _publish(self, release: Release) -> Published:
        entry = release.entry
        published = Published(entry.tag, entry.digest)

        def step(name: str, there: bool, do: Callable[[], str | None], detail: str) -> None:
            state: State = "there" if there else "would be done" if self.dry_run else "done"
            told = do() if state == "done" else None
            published.steps.append(Step(name, state, told or detail))
            self.out.note(f"{entry.tag}: {name}: {state}")

        at = self.git.tag_commit(entry.tag.git)
        if at not in (None, entry.commit):
            raise UserError(f"git tag {entry.tag.git} is at {at}, {entry.commit} was expected: tags are never moved")
        held = self._held(release)
        step("git tag", at is not None, lambda: self._tag(release), f"{entry.tag.git} at {entry.commit[:12]}")
        reference = f"{self.registry.address}/{self.name}:{entry.tag.name}"
        step("image", held is not None, lambda: self._push(release), f"{reference}@{entry.digest}")
        attached = self._attached(release) if held else {}
        for kind, called in KINDS.items():
            attest = functools.partial(self._attest, release, kind)
            step(called, kind in attached, attest, attached.get(kind, "signed with the key"))
        if not self.dry_run or all(one.state == "there" for one in published.steps):
            published.steps.append(Step("read back", "done", self._read_back(release)))
        return published

    def _held(self, release: Release) -> Descriptor | None:
        entry = release.entry
        found = self.registry.resolve(self.name, entry.tag.name)
        if found is not None and found.digest != entry.digest:
            raise TagTakenError(
                f"{self.registry.address}/{self.name}:{entry.tag.name}: stands for {found.digest} there, CHANGELOG.md"
                f" says {entry.digest}; a tag is never moved: cut another release, or remove the tag there by hand"
            )
        return found

    def _tag(self, release: Release) -> None:
        entry = release.entry
        message = f"{entry.tag}\n\n{entry.summary}\n\nImage: {entry.digest}\n"
        self.git.create_tag(entry.tag.git, entry.commit, message)

    def _push(self, release: Release) -> str:
        entry = release.entry
        with released_image(self.git, entry, self.out, self.layouts) as image, self.out.progress() as bar:
            pushed = push_image(self.registry, self.name, entry.tag.name, image, bar)
        sent = f"{pushed.sent} blobs sent ({pushed.bytes_sent / 1e6:,.1f} MB), {pushed.present} there already"
        return f"{self.registry.address}/{self.name}:{entry.tag.name}@{entry.digest}: {sent}"

    def _attached(self, release: Release) -> dict[str, str]:
        """The attestations that hold and are this key's: predicate type to the artifact's digest."""
        found = {}
        for attestation in referrers.fetch(self.registry, self.name, release.record.digest):
            try:
                signed = dsse.verify_own(attestation.envelope, self.key)
                verify.compare(signed.statement, release.record.digest, release.statements)
            except AttestationError:
                continue
            found[signed.statement.predicate_type] = attestation.descriptor.digest
        return found

    def _attest(self, release: Release, kind: str) -> str:
        image = self._held(release)
        if image is None:
            raise RegistryError(f"{self.registry.address}/{self.name}: lost {release.entry.tag.name}; run this again")
        envelope = dsse.sign(release.statements[kind].encode(), self.key)
        created = release.record.oci_config.get("created")
        return referrers.attach_envelope(self.registry, self.name, image, kind, created, envelope).digest

    def _read_back(self, release: Release) -> str:
        """Reads what was published as a stranger would, and checks it. Raises UserError."""
        entry, record = release.entry, release.record
        where = f"{self.registry.address}/{self.name}:{entry.tag.name}"
        descriptor, data = self.registry.manifest(self.name, entry.tag.name)
        if data != record.image:
            raise RegistryError(f"{where}: holds {descriptor.digest}, {record.digest} was published; look who wrote it")
        document = record.oci_manifest
        config = Descriptor.read(document["config"], where)
        b"".join(self.registry.blob(self.name, config))
        layers = [Descriptor.read(value, where) for value in document["layers"]]
        if lost := [layer.digest for layer in layers if not self.registry.has_blob(self.name, layer)]:
            raise RegistryError(f"{where}: the registry lost layer {lost[0]}; delete the tag there, run this again")
        if self.deep:
            with self.out.progress() as bar:
                bar.start(f"reading {where}", sum(layer.size for layer in layers))
                for layer in layers:
                    for chunk in self.registry.blob(self.name, layer):
                        bar.advance(len(chunk))
        verified = verify.check(
            self.registry,
            self.name,
            entry.digest,
            lambda envelope: dsse.verify_own(envelope, self.key),
            release.statements,
        )
        how = "read and hashed" if self.deep else "there with their sizes"
        return f"manifest, configuration, {len(verified)} attestations read and checked; {len(layers)} layers {how}"


def line_of(known: Known, tags: Sequence[Tag], name: str) -> str:
    """The line whose releases the repository `name` holds: that of `tags`, else the one that it is named after.

    Raises UserError where that is none, or several: their tags would get into each other's way.
    """
    if tags:
        lines = sorted({tag.line for tag in tags})
        if len(lines) > 1:
            raise UserError(f"{', '.join(lines)}: a repository holds one line; publish each into its own")
        return lines[0]
    lines = sorted({entry.tag.line for entry in known.changelog.entries})
    last = name.rpartition("/")[2]
    if last in lines:
        return last
    if len(lines) == 1:
        return lines[0]
    listed = ", ".join(lines) or "no release at all"
    raise UserError(f"{name}: is not named after a line of CHANGELOG.md ({listed}); say which TAGs to publish")


def document(published: Sequence[Published], repository: str, dry_run: bool = False) -> dict[str, Any]:
    """What was done, for machines."""
    return {
        "schema": "moet.release-publish.v1",
        "repository": repository,
        "dry_run": dry_run,
        "releases": [
            {
                "tag": str(one.tag),
                "digest": one.digest,
                "git_tag": one.tag.git,
                "steps": [{"step": step.name, "state": step.state, "detail": step.detail} for step in one.steps],
            }
            for one in published
        ],
    }
