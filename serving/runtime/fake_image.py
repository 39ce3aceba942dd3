"""For tests: a folder laid out as the image's root, with a small vllm, an overlay and a launcher."""

import base64
import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from images.manifest import builder, inputs, model

SITE = "/usr/local/lib/python3.11/dist-packages"
RECORD = f"{SITE}/vllm-0.33.0.dist-info/RECORD"
OVERLAID = f"{SITE}/vllm/tokenizers/deepseek_v41.py"
KERNEL = f"{SITE}/moet_kernels/gemv/gemv.so"
RUNTIME = "/usr/lib/moet/serving/runtime/attest.py"
LAUNCHER = "/usr/local/bin/vllm"
SWITCHES = ("VLLM_MOET_REASONING_TIERS", "VLLM_MOET_MOE_BLOCK_M")

_FILES = {
    f"{SITE}/vllm/__init__.py": "raise RuntimeError('imported')\n",
    f"{SITE}/vllm/tokenizers/__init__.py": "",
    OVERLAID: "TIERS = {'minimal': 25}\n",
    f"{SITE}/moet_kernels/__init__.py": "",
    KERNEL: "\x7fELF",
    RUNTIME: "'''Attestation.'''\n",
    LAUNCHER: '#!/bin/sh\necho "pid $$ safe $PYTHONSAFEPATH"\nfor each; do echo "argument $each"; done\n',
}
_ATTESTED: dict[str, model.FileKind] = {
    OVERLAID: "overlay",
    RECORD: "overlay",
    KERNEL: "kernel",
    RUNTIME: "runtime",
}


@dataclass
class FakeImage:
    """The folder `root` and the environment that its configuration would give."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def path(self, inside: str) -> Path:
        """The host's path of an absolute path of the image."""
        return self.root / inside.lstrip("/")

    def write(self, inside: str, content: bytes) -> None:
        """Writes a file, and the folders that it needs."""
        self.path(inside).parent.mkdir(parents=True, exist_ok=True)
        self.path(inside).write_bytes(content)


def make(root: Path) -> FakeImage:
    """Lays out an image that attests: two steps, the second off by default."""
    image = FakeImage(root)
    for path, text in _FILES.items():
        image.write(path, text.encode())
    image.path(LAUNCHER).chmod(0o755)
    rows = [_row("vllm/tokenizers/deepseek_v41.py", OVERLAID), _row("../../../bin/vllm", LAUNCHER)]
    image.write(RECORD, "".join([*rows, "vllm-0.33.0.dist-info/RECORD,,\n"]).encode())
    data = model.dumps(_manifest(image))
    image.write(model.PATH, data)
    image.environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(image.path(SITE)),
        model.ANCHOR: hashlib.sha256(data).hexdigest(),
    }
    return image


def remake_manifest(image: FakeImage, data: bytes) -> None:
    """Replaces the manifest and its anchor, as a build gone wrong would."""
    image.write(model.PATH, data)
    image.environment[model.ANCHOR] = hashlib.sha256(data).hexdigest()


def python() -> str:
    """The interpreter that stands for the image's."""
    return sys.executable


def _row(name: str, path: str) -> str:
    content = _FILES[path].encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(content)}\n"


def _manifest(image: FakeImage) -> model.Manifest:
    wheel = model.Source("vllm-0.33.0.whl", "a" * 64)
    files = []
    for path, kind in _ATTESTED.items():
        content = image.path(path).read_bytes()
        files.append(model.File(path, hashlib.sha256(content).hexdigest(), len(content), kind))
    line = inputs.Line(
        line="dsv41",
        tag="dsv41:vllm0.33.0-r1",
        base=model.Base("vllm", "0.33.0", "4ba787ec9"),
        steps=(
            _step(1, "reasoning-effort-tiers", SWITCHES[0], "1", "1", "none", ("tiers.patch",)),
            _step(2, "moe-row-alignment", SWITCHES[1], "0", "64", "identical", (), ("gemv",)),
        ),
        labels={},
        commit="c" * 40,
    )
    patch = model.Patch(
        name="tiers.patch",
        sha256="b" * 64,
        description="Accept every tier",
        reason="cannot be upstreamed",
        step="reasoning-effort-tiers",
        switch=SWITCHES[0],
        forwarded="no",
        drop_when="upstream accepts them",
        last_update="2026-01-31",
        files=("vllm/tokenizers/deepseek_v41.py",),
    )
    changed = inputs.OverlayFile(
        "vllm/tokenizers/deepseek_v41.py", "c" * 64, files[0].sha256, ("tiers.patch",)
    )
    overlay = inputs.Overlay("vllm", "0.33.0", wheel, (patch,), (changed,))
    pin = model.Pin("vllm", "0.33.0", "wheel", wheel.file, wheel.sha256)
    return builder.build(line, SITE, [overlay], [pin], files)


def _step(
    number: int,
    name: str,
    switch: str,
    default: str,
    on: str,
    numerics: model.Numerics,
    patches: tuple[str, ...],
    kernels: tuple[str, ...] = (),
) -> inputs.LineStep:
    return inputs.LineStep(
        number=number,
        name=name,
        reason="it is needed",
        switch=switch,
        default=default,
        on=on,
        numerics=numerics,
        evidence="//some:test",
        drop_when="upstream has it",
        patches=patches,
        kernels=kernels,
    )
