"""Step pdl: the kernels that write DeepSeek V4.1's caches begin early, and wait before they touch memory."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

OPS = "vllm.models.deepseek_v41.common.ops"
PDL, KEYS, CACHE = f"{OPS}.moet_pdl", f"{OPS}.indexer_k_store", f"{OPS}.fused_compress_quant_cache"
# What may read or write memory, leave the kernel, or go round the wait.
TOUCHES = re.compile(r"\b(ld|st|atom|red|cp|bra|ret|exit)\b[.;\s]")
TOKENS = 6

Fresh = Callable[..., ModuleType]


class Launches:
    """In a kernel's place: what each launch is told of PDL."""

    def __init__(self, seen: dict[str, set[tuple[bool, bool]]], name: str) -> None:
        self.seen, self.name = seen, name

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*tensors: Any, **words: Any) -> None:
            del tensors
            self.seen.setdefault(self.name, set()).add((words["LAUNCH_PDL"], words["launch_pdl"]))

        return launch


def launches(fresh: Fresh, monkeypatch: pytest.MonkeyPatch, switch: str | None) -> dict[str, set[tuple[bool, bool]]]:
    """What every cache-writing kernel is launched with, by the functions that the model calls."""
    _, keys, cache = (fresh(name, VLLM_MOET_PDL=switch) for name in (PDL, KEYS, CACHE))
    seen: dict[str, set[tuple[bool, bool]]] = {}
    for module in (keys, cache):
        for name in dir(module):
            if name.endswith("_kernel"):
                monkeypatch.setattr(module, name, Launches(seen, name))
    positions, slots = torch.arange(TOKENS), torch.arange(TOKENS)
    latent = torch.zeros(TOKENS, 512, dtype=torch.bfloat16)
    rotation = torch.zeros(64, 64)
    one = torch.ones(1)
    for ratio in (1, 2):
        state = torch.zeros(1, 8, 1024) if ratio == 2 else None
        starts = torch.tensor([0, TOKENS], dtype=torch.int32) if ratio == 2 else None
        requests = torch.zeros(TOKENS, dtype=torch.int32) if ratio == 2 else None
        cache.fused_save_compress_norm(
            torch.zeros(TOKENS, 512 * ratio), positions, state, slots, starts, requests, latent[0], 1e-6, ratio, latent
        )
        for width in (584, 528, 288):
            pages = torch.zeros(1, 64, width, dtype=torch.uint8)
            cache.rope_quant_insert(latent, positions, rotation, pages, slots, ratio)
        for plain in (torch.bfloat16, torch.float8_e4m3fn):
            pages = torch.zeros(1, 64, 512, dtype=plain)
            cache.rope_quant_insert(latent, positions, rotation, pages, slots, ratio, fp8_scale=one)
        for width in (132, 68):
            pages = torch.zeros(1, 64, width, dtype=torch.uint8)
            keys.indexer_k_norm_rope_store(
                latent[:, :128], positions, rotation, latent[0, :128], 1e-6, pages, slots, ratio, width == 68
            )
    return seen


@pytest.mark.parametrize(
    ("switch", "card", "early"),
    [
        (None, (12, 0), False),
        ("0", (12, 0), False),
        ("1", (12, 0), True),
        ("1", (12, 1), False),
        ("1", (10, 0), False),
        ("1", (9, 0), False),
    ],
)
def test_a_kernel_is_launched_early_where_it_waits_itself(
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
    device: Callable[[int, int], None],
    switch: str | None,
    card: tuple[int, int],
    early: bool,
) -> None:
    device(*card)
    seen = launches(fresh, monkeypatch, switch)
    assert len(seen) == 6
    assert set().union(*seen.values()) == {(early, early)}


@pytest.fixture(scope="module")
def compiled() -> dict[str, dict[str, str]]:
    """PTX of the kernels for sm_120a, launched as dependents and not."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_cache_kernels.py")],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "kernel",
    [
        "compress by 1",
        "compress by 2",
        "insert 584 B",
        "insert 528 B",
        "insert 288 B",
        "insert plain",
        "keys in FP8",
        "keys in MXFP4",
    ],
)
def test_every_program_waits_before_it_touches_memory_or_leaves(
    compiled: dict[str, dict[str, str]], kernel: str
) -> None:
    on, off = compiled[kernel]["on"], compiled[kernel]["off"]
    assert ".target sm_120a" in on and ".target sm_120a" in off
    assert "griddepcontrol" not in off
    body = on.partition("{")[2]
    # Arguments are read from constant memory, which no kernel writes.
    lines = [line for line in body.splitlines() if "ld.param" not in line]
    first = next(index for index, line in enumerate(lines) if TOUCHES.search(line))
    wait = next(index for index, line in enumerate(lines) if "griddepcontrol.wait" in line)
    let = next(index for index, line in enumerate(lines) if "griddepcontrol.launch_dependents" in line)
    assert wait < let < first
    assert on.count("griddepcontrol.") == 2


def test_the_wait_is_for_a_launch_that_needs_it(compiled: dict[str, dict[str, str]]) -> None:
    """What the switch changes of a kernel is the two instructions: as many others of each kind as before."""

    def kinds(ptx: str) -> dict[str, int]:
        body = re.sub(r"//[^\n]*|\.loc[^\n]*", "", ptx.partition("{")[2].partition("\n}")[0])
        names = re.findall(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)", body, re.MULTILINE)
        return {name: names.count(name) for name in sorted(set(names)) if not name.startswith("griddepcontrol")}

    for kernel, ptx in compiled.items():
        assert kinds(ptx["on"]) == kinds(ptx["off"]), kernel
        assert sum(kinds(ptx["on"]).values()) > 100
