"""For tests: a small line's inputs, and the builder run on them."""

import json
from pathlib import Path
from typing import Any

from images.manifest import cli

SITE = "/usr/local/lib/python3.11/dist-packages"

Inputs = dict[str, Any]


def step(number: int, name: str, patches: list[str], **more: object) -> dict[str, Any]:
    """A step as line.json has it; `more` replaces values."""
    return {
        "number": number,
        "name": name,
        "reason": "Requests fail.",
        "switch": "VLLM_MOET_" + name.upper().replace("-", "_"),
        "default": "1",
        "numerics": "none",
        "evidence": "//images/dsv41:engine_test",
        "drop_when": "upstream has it",
        "patches": patches,
        "kernels": [],
        **more,
    }


def patch(name: str, of: str, *files: str) -> dict[str, Any]:
    """A patch as overlay.json has it, of the step `of`."""
    return {
        "name": name,
        "sha256": "1" * 64,
        "description": "One line\nand \u00e9 another",
        "reason": "cannot be upstreamed",
        "step": of,
        "switch": "VLLM_MOET_" + of.upper().replace("-", "_"),
        "forwarded": "no",
        "drop_when": "upstream has it",
        "last_update": "2026-01-31",
        "files": list(files),
    }


def library(family: str) -> list[Any]:
    """The row of a family's library in the listing of a layer of kernels."""
    return [f"{SITE[1:]}/moet_kernels/{family}/{family}.so", "f", 420, 15, "8" * 64, "moet"]


def inputs() -> Inputs:
    """A line with two steps; the second has one patch that adds a file, the first one that changes two."""
    record = f"{SITE[1:]}/vllm-0.33.0.dist-info/RECORD"
    return {
        "line": {
            "line": "dsv41",
            "tag": "dsv41:vllm0.33.0-r1-dev",
            "base": {"name": "vllm", "version": "0.33.0", "commit": "4ba787ec9"},
            "steps": [
                step(2, "next", ["b.patch"], default="0"),
                step(1, "tiers", ["z.patch"], meaning="Tiers."),
            ],
            "labels": {"org.opencontainers.image.description": "A sentence", "com.example.team": "x"},
            "created": "2026-01-31T12:00:00Z",
        },
        "overlay": {
            "project": "vllm",
            "version": "0.33.0",
            "source": {"file": "vllm-0.33.0.whl", "sha256": "a" * 64},
            "patches": [
                patch("z.patch", "tiers", "vllm/a.py", "vllm/b.py"),
                patch("b.patch", "next", "vllm/c.py"),
            ],
            "files": [
                {"path": "vllm/a.py", "before": "2" * 64, "after": "3" * 64, "patches": ["z.patch"]},
                {"path": "vllm/b.py", "before": "2" * 64, "after": "4" * 64, "patches": ["z.patch"]},
                {"path": "vllm/c.py", "before": None, "after": "5" * 64, "patches": ["b.patch"]},
            ],
        },
        "pins": [
            {
                "name": "vllm",
                "version": "0.33.0",
                "kind": "wheel",
                "file": "vllm-0.33.0.whl",
                "sha256": "a" * 64,
            },
            {"name": "deepgemm", "version": "2.8.1", "kind": "source", "commit": "0820030"},
            {
                "name": "bash",
                "version": "5.2.15-2+b13",
                "kind": "deb",
                "file": "bash.deb",
                "sha256": "b" * 64,
            },
        ],
        "code": {
            "vllm/a.py": 'import os\n\nTIERS = bool(int(os.getenv("VLLM_MOET_TIERS", "1")))\n',
            "vllm/b.py": "",
            "vllm/c.py": 'import os\nNEXT = os.environ.get("VLLM_MOET_NEXT", "0") == "1"\n',
        },
        "overlay layer": [
            [SITE[1:], "d", 493, 0, "", ""],
            [f"{SITE[1:]}/vllm/a.py", "f", 420, 10, "3" * 64, "vllm"],
            [f"{SITE[1:]}/vllm/b.py", "f", 420, 11, "4" * 64, "vllm"],
            [f"{SITE[1:]}/vllm/c.py", "f", 420, 12, "5" * 64, "vllm"],
            [record, "f", 420, 13, "6" * 64, "vllm"],
        ],
        "runtime layer": [
            ["usr/bin/moet-serve", "f", 493, 14, "7" * 64, "moet"],
            ["usr/bin/alias", "l", 511, 0, "moet-serve", "moet"],
        ],
    }


def run(
    given: Inputs, folder: Path, with_overlay: bool = True, status: Path | None = None
) -> tuple[int, list[Path]]:
    """Runs the builder on inputs written to `folder`; returns its status and what it should write.

    `given` may have a "kernel layer" beside what inputs() has.
    """
    for name, value in given.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    for path, text in given["code"].items():
        (folder / "code" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "code" / path).write_text(text)
    outputs = [folder / name for name in ("manifest.out", "labels.out", "env.out")]
    arguments = ["--line", f"{folder}/line.json", "--pins", f"{folder}/pins.json", "--site", SITE]
    if status:
        arguments += ["--status", str(status)]
    if with_overlay:
        arguments += [
            "--overlay",
            f"{folder}/overlay.json",
            f"{folder}/code",
            "--layer",
            "overlay",
            f"{folder}/overlay layer.json",
        ]
    for kind in ("kernel", "runtime"):
        if f"{kind} layer" in given:
            arguments += ["--layer", kind, f"{folder}/{kind} layer.json"]
    arguments += ["--manifest", str(outputs[0]), "--labels", str(outputs[1]), "--env", str(outputs[2])]
    return cli.main(arguments), outputs
