"""For tests: trees that know releases, layouts that were meddled with, and the command."""

import contextlib
import datetime
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from images.inspect import documents, source
from images.manifest import model
from releases.changelog import grammar
from releases.changelog.entry import Bullet, Changelog, Entry
from releases.record import Record
from releases.tag import Tag
from tests.engine.synthetic import COMMIT
from tools.moet import main


def make_tree(
    root: Path, layouts: Mapping[str, Path], manifest: bytes = b"", changes: Mapping[str, Any] | None = None
) -> Path:
    """A source tree whose CHANGELOG.md and records have these releases (tag to layout), in this order.

    Its bazelw "builds" `manifest` for every line. `changes` replaces fields of the last entry.
    """
    bin_ = root / "bin"
    entries: list[Entry] = []
    for tag, layout in layouts.items():
        record = record_of(layout)
        parsed = Tag.parse(tag)
        for name, data in record.files().items():
            path = root / "releases/records" / parsed.line / parsed.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (root / "images" / parsed.line).mkdir(parents=True, exist_ok=True)
        (root / "images" / parsed.line / "BUILD.bazel").touch()
        for target in ("manifest", "manifest.base"):
            built = bin_ / "images" / parsed.line / f"{target}.json"
            built.parent.mkdir(parents=True, exist_ok=True)
            built.write_bytes(manifest or record.manifest)
        fields: dict[str, Any] = {
            "tag": parsed,
            "date": datetime.date(2026, 1, 31),
            "summary": "A release.",
            "digest": record.digest,
            "image_id": record.image_id,
            "commit": COMMIT,
            "base": "vllm 0.33.0 4ba787ec9",
            "steps": tuple((step.number, step.name) for step in record.moet.steps),
            "follows": entries[-1].tag if entries else None,
            "rollback": entries[-1].tag if entries else None,
            "rollback_switches": (),
            "sections": {"Added": (Bullet("All of it.", 0),)},
        }
        entries.append(Entry(**fields))
    if changes:
        entries[-1] = Entry(**{**vars(entries[-1]), **changes})
    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / "bazelw").write_text(f"#!/bin/sh\ncase \"$*\" in info*) echo {bin_} ;; esac\n")
    (root / "bazelw").chmod(0o755)
    text = grammar.render(Changelog("What is released.", {}, tuple(reversed(entries))))
    (root / "CHANGELOG.md").write_text(text)
    return root


def record_of(directory: Path) -> Record:
    """The record of the image of a layout."""
    view = source.open_image(str(directory.resolve()), None)
    assert view.digest
    image, config = (blob_path(directory, digest).read_bytes() for digest in (view.digest, view.image_id))
    record = Record(image, config, model.dumps(view.manifest))
    record.check(str(directory))
    return record


def moet(*arguments: str) -> tuple[int, str, str]:
    """Runs moet in this process; returns its status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main(list(arguments))
    return status, out.getvalue(), err.getvalue()


def moet_json(*arguments: str, status: int = 0) -> dict[str, Any]:
    """Runs moet with --json, which must end with `status`; returns what it printed."""
    found, out, err = moet(*arguments, "--json")
    assert found == status, err
    value: dict[str, Any] = json.loads(out)
    return value


def raw_tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar of these members."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as out:
        for member, data in members:
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return raw.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """A tar's member."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def with_layer(source: Path, directory: Path, tar: bytes, diff_id: str | None = None) -> Path:
    """A copy of a layout whose image has one more layer on top, as somebody else's build would add it."""

    def add(config: dict[str, Any], image: dict[str, Any]) -> None:
        blob = gzip.compress(tar, mtime=0)
        config["rootfs"]["diff_ids"].append(diff_id or documents.digest(tar))
        config["history"].append({"created_by": "RUN something"})
        image["layers"].append(put(directory, blob, image["layers"][0]["mediaType"]))

    return meddled(source, directory, add)


def meddled(source: Path, directory: Path, meddle: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """A copy of a layout whose configuration and OCI manifest were changed, and every hash made to fit."""
    shutil.copytree(source, directory)
    index = json.loads((directory / "index.json").read_bytes())
    entry = index["manifests"][0]
    image = json.loads(blob_path(directory, entry["digest"]).read_bytes())
    config = json.loads(blob_path(directory, image["config"]["digest"]).read_bytes())
    before = json.dumps(config)
    meddle(config, image)
    if json.dumps(config) != before:
        image["config"].update(put(directory, json.dumps(config).encode(), image["config"]["mediaType"]))
    entry.update(put(directory, json.dumps(image).encode(), entry["mediaType"]))
    (directory / "index.json").write_text(json.dumps(index))
    return directory


def put(directory: Path, data: bytes, media_type: str) -> dict[str, Any]:
    """Writes a blob into a layout and returns its descriptor."""
    digest = documents.digest(data)
    blob_path(directory, digest).write_bytes(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def blob_path(directory: Path, digest: str) -> Path:
    """Where a layout has a blob."""
    return directory / "blobs/sha256" / digest.removeprefix("sha256:")


def pack(directory: Path, path: Path) -> Path:
    """A layout as one tar, as `podman save --format oci-archive` writes it."""
    with tarfile.open(path, "w") as out:
        for file in sorted(directory.rglob("*")):
            out.add(file, str(file.relative_to(directory)), recursive=False)
    return path


def docker_save(directory: Path, path: Path, links: bool = False) -> Path:
    """The image of a layout as `docker save` of Docker 20.10 writes it; with `links`, a layer is a link to a file."""
    image = layout_documents(directory)
    config = blob_path(directory, image["config"]["digest"]).read_bytes()
    name = image["config"]["digest"].removeprefix("sha256:") + ".json"
    members, layers = [(member(name), config)], []
    for number, layer in enumerate(image["layers"]):
        data = gzip.decompress(blob_path(directory, layer["digest"]).read_bytes())
        layers.append(f"{number}/layer.tar")
        if links:
            members.append((member(f"{number}.tar"), data))
            members.append((member(layers[-1], tarfile.SYMTYPE, f"../{number}.tar"), b""))
        else:
            members.append((member(layers[-1]), data))
    listed = [{"Config": name, "RepoTags": ["dsv41:vllm0.33.0-r1"], "Layers": layers}]
    path.write_bytes(raw_tar(*members, (member("manifest.json"), json.dumps(listed).encode())))
    return path


def layout_documents(directory: Path) -> dict[str, Any]:
    """The OCI manifest of a layout's image."""
    index = json.loads((directory / "index.json").read_bytes())
    image: dict[str, Any] = json.loads(blob_path(directory, index["manifests"][0]["digest"]).read_bytes())
    return image
