"""Small OCI layouts, made in a test: plain ones for the programs that only move images about, and images of Moet's."""

import base64
import gzip
import io
import json
import os
import random
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from images.manifest import inputs, labels, model
from images.oci import assemble, layer
from serving.runtime.record import LAUNCHER

SITE = "/usr/local/lib/python3.11/dist-packages"
COMMIT = "c0ffee" * 6 + "c0ff"
_UPSTREAM = "4ba787ec9"
_CREATED = "2026-01-31T12:00:00Z"
_MTIME = 1767225600

def noise(seed: int, size: int) -> bytes:
    """`size` bytes that no compression shrinks, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def make_layout(
    directory: Path, name: str, layers: Sequence[dict[str, bytes]], environment: Sequence[str] = ()
) -> Path:
    """Write an OCI layout of one image, `name`, with a layer for each {path: contents}, and return its directory."""
    (directory / "blobs" / "sha256").mkdir(parents=True)
    diff_ids, descriptors = [], []
    for files in layers:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, contents in files.items():
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(contents), 0o755
                tar.addfile(member, io.BytesIO(contents))
        diff_ids.append(f"sha256:{sha256(raw.getvalue()).hexdigest()}")
        blob = gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)
        descriptors.append(_write(directory, blob, "application/vnd.oci.image.layer.v1.tar+gzip"))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": list(environment)},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _write(directory, _dump(config), "application/vnd.oci.image.config.v1+json"),
        "layers": descriptors,
    }
    entry = _write(directory, _dump(manifest), manifest["mediaType"])
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    (directory / "index.json").write_bytes(_dump({"schemaVersion": 2, "manifests": [entry]}))
    (directory / "oci-layout").write_bytes(_dump({"imageLayoutVersion": "1.0.0"}))
    return directory


def step(number: int, name: str, **more: Any) -> model.Step:
    """A step that NAME.patch and the switch VLLM_MOET_<NAME> belong to; `more` replaces fields."""
    given = {
        "reason": f"Without {name}, requests fail.",
        "switch": "VLLM_MOET_" + name.upper().replace("-", "_"),
        "default": "1",
        "numerics": "none",
        "evidence": "//images/dsv41:engine_test",
        "drop_when": f"upstream has {name}",
        "patches": (f"{name}.patch",),
        "kernels": (),
    }
    return model.Step(number, name, **{**given, **more})


STEPS = (step(1, "tiers"), step(2, "next", default="0", numerics="rounding"))


def make_moet_layout(
    directory: Path,
    tag: str = "dsv41:vllm0.33.0-r1",
    *,
    commit: str | None = None,
    steps: Sequence[model.Step] = STEPS,
    patches: Mapping[str, str] | None = None,
    pins: Mapping[str, str] | None = None,
    layers: Mapping[str, Mapping[str, bytes]] | None = None,
    parts: Sequence[assemble.Part] = (),
    runtime: Mapping[str, bytes] | None = None,
    kernels: Mapping[str, bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    entrypoint: Sequence[str] = ("/usr/bin/moet-serve",),
    edit_manifest: Callable[[dict[str, Any]], object] | None = None,
    edit_labels: Callable[[dict[str, str]], object] | None = None,
) -> Path:
    """Write a small image of Moet's, made as the real ones are, as an OCI layout; returns its directory.

    Layers: those of `layers`, runtime, with kernels and steps a layer each, and the manifest's. Two images made
    with the same arguments but `tag` and `commit` differ in the manifest's layer alone.

    Args:
        directory: made; must not exist.
        tag: LINE:vllmVERSION-rN, a release; or that with -dev, which is none.
        commit: of the release, 40 hex digits; default: COMMIT.
        steps: see step(); none is upstream as released (r0).
        patches: name of a patch to what it installs, where that should not be the step's name.
        pins: project to version, beside vllm's wheel, one deb and one source.
        layers: name to {path without leading slash: content}, lowest first; default: rootfs and vllm, 300 kB.
        parts: layers that a build made, below all others.
        runtime: path without leading slash to content of the entry point's files; default: a shell script.
        kernels: file name below the site folder to content.
        environment: beside the anchor of the manifest.
        entrypoint: the image's.
        edit_manifest: changes the manifest's plain data, for images that are no good; its hashes follow.
        edit_labels: likewise the labels.
    """
    version = tag.partition(":")[2].removeprefix("vllm").rpartition("-r")[0]
    commit = None if tag.endswith("-dev") else commit or COMMIT
    if layers is None:
        layers = {"rootfs": {"etc/os-release": b"PRETTY_NAME=small\n"}, "vllm": _wheel(version)}
    changes = {
        name: (patches or {}).get(name, f"# {name}\n").encode() for each in steps for name in each.patches
    }
    files = {f"{SITE[1:]}/vllm/{name.removesuffix('.patch')}.py": data for name, data in changes.items()}
    launcher = {path: data for part in layers.values() for path, data in part.items() if path == LAUNCHER[1:]}
    record = model.record_path(SITE, "vllm", version)[1:]
    attested: dict[str, tuple[model.FileKind, Mapping[str, bytes]]] = {
        "runtime": ("runtime", runtime or {"usr/bin/moet-serve": b"#!/bin/sh\necho moet\n"})
    }
    if kernels:
        attested["kernels"] = ("kernel", {f"{SITE[1:]}/{path}": data for path, data in kernels.items()})
    if steps:
        attested["overlay_layer"] = ("overlay", {**files, record: make_record({**files, **launcher})})
    manifest = _manifest(tag, version, commit, steps, changes, pins or {}, attested)
    plain = model.encode(manifest)
    if edit_manifest:
        edit_manifest(plain)
    data = model.dumps(plain)
    digest = sha256(data).hexdigest()
    line = inputs.Line(manifest.line, tag, manifest.base, (), {}, _CREATED, commit)
    named = labels.labels(line, manifest, digest)
    if edit_labels:
        edit_labels(named)
    spec = {
        "reference": tag,
        "env": {"PATH": "/usr/bin:/bin", **(environment or {}), model.ANCHOR: digest},
        "entrypoint": list(entrypoint),
        "cmd": [],
        "user": "1000:1000",
        "workdir": "/",
        "replaces": {"overlay_layer": "test"},
    }
    contents = {**layers, **{name: files for name, (_, files) in attested.items()}}
    contents["manifest.layer"] = {model.PATH[1:]: data}
    with tempfile.TemporaryDirectory() as folder:
        made = [_part(Path(folder), name, files) for name, files in contents.items()]
        assemble.assemble(directory, spec, [*parts, *made], named)
    return directory


def make_record(files: Mapping[str, bytes]) -> bytes:
    """The RECORD (PEP 376) of a wheel that installed `files`, path without leading slash to content."""
    rows = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{os.path.relpath(f'/{path}', SITE)},sha256={digest},{len(data)}\n")
    return "".join(rows).encode()


def name_of(directory: Path) -> str:
    """The name that the layout in `directory` was made with."""
    index = json.loads((directory / "index.json").read_bytes())
    return str(index["manifests"][0]["annotations"]["io.containerd.image.name"])


def _wheel(version: str) -> dict[str, bytes]:
    record = model.record_path(SITE, "vllm", version)[1:]
    return {f"{SITE[1:]}/vllm/__init__.py": b"", f"{SITE[1:]}/vllm/_C.so": noise(33, 300_000), record: b"vllm\n"}


def _manifest(
    tag: str,
    version: str,
    commit: str | None,
    steps: Sequence[model.Step],
    changes: Mapping[str, bytes],
    pins: Mapping[str, str],
    attested: Mapping[str, tuple[model.FileKind, Mapping[str, bytes]]],
) -> model.Manifest:
    wheel = f"vllm-{version}.whl"
    known = [
        model.Pin("bash", "5.2.15-2+b13", "deb", "bash.deb", "b" * 64),
        model.Pin("deepgemm", "2.8.1", "source", commit="0820030"),
        _pin("vllm", version, wheel),
        *(_pin(name, pinned, f"{name}-{pinned}.whl") for name, pinned in pins.items()),
    ]
    return model.Manifest(
        schema=model.SCHEMA,
        line=tag.partition(":")[0],
        tag=tag,
        base=model.Base("vllm", version, _UPSTREAM),
        site=SITE,
        overlays=(model.Overlay("vllm", version, model.Source(wheel, _hex(wheel.encode()))),) if steps else (),
        pins=tuple(sorted(known, key=lambda pin: (pin.kind, pin.name))),
        steps=tuple(sorted(steps, key=lambda each: each.number)),
        patches=tuple(_patch(each, name, changes[name]) for each in steps for name in each.patches),
        switches=tuple(_switch(each) for each in sorted(steps, key=lambda each: each.switch or "") if each.switch),
        files=tuple(
            sorted(
                (
                    model.File(f"/{path}", _hex(data), len(data), kind)
                    for kind, files in attested.values()
                    for path, data in files.items()
                ),
                key=lambda file: file.path,
            )
        ),
        commit=commit,
    )


def _pin(name: str, version: str, file: str) -> model.Pin:
    return model.Pin(name, version, "wheel", file, _hex(file.encode()))


def _patch(of: model.Step, name: str, change: bytes) -> model.Patch:
    return model.Patch(
        name=name,
        sha256=_hex(b"patch " + change),
        description=f"Make {of.name} work\nand say why",
        reason="cannot be upstreamed",
        step=of.name,
        switch=of.switch,
        forwarded="no",
        drop_when=of.drop_when,
        last_update="2026-01-31",
        files=(f"vllm/{name.removesuffix('.patch')}.py",),
    )


def _switch(of: model.Step) -> model.Switch:
    on = of.default if of.default != "0" else "1"
    return model.Switch(of.switch or "", of.default, on, of.name, f"{on} turns step {of.number} on")


def _part(folder: Path, name: str, files: Mapping[str, bytes]) -> assemble.Part:
    prefix = folder / name
    with layer.LayerWriter(Path(f"{prefix}.tar.gz"), _MTIME) as out:
        out.owner = "test"
        for path, data in files.items():
            out.file(path, data, mode=0o755 if "/bin/" in path else 0o644)
        layer.write_descriptor(out.close(name, f"{name} of a test"), Path(f"{prefix}.json"))
    layer.write_listing(out.entries, Path(f"{prefix}.files.json"))
    return assemble.read_part(str(prefix))


def _hex(data: bytes) -> str:
    return sha256(data).hexdigest()


def _write(directory: Path, data: bytes, media_type: Any) -> dict[str, Any]:
    digest = sha256(data).hexdigest()
    (directory / "blobs" / "sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _dump(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
