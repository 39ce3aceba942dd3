"""docs/fit-a-model.md, command by command: what is printed is what the page shows."""

import io
import itertools
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from kernels.common import planes
from serving.experts.recipes import load
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.quantize import run, wording
from tools.experts.synthetic import __main__ as synthetic
from tools.moet import main

PAGE = Path("docs/fit-a-model.md").read_text()

# Lines that depend on the machine or the time; all others are compared as they are.
THREADS = r"mxfp4, 4 layers x 16 experts, (?P<threads>\d+) threads, (?P<size>\d+\.\d\d MiB) of buffers at most"
VARYING = (
    THREADS,
    r"read 12\.75 MiB in \d+\.\d s \(\d+\.\d\d GB/s\), with \d+\.\d\d MiB of buffers",
    r"8 records compared with the checkpoint: the same \(--seed \d{1,10}\)",
    # A file system may compress, or allocate in larger blocks.
    r" on disk +\d+\.\d\d MiB \([\d,]+ B\)",
    # What this host can do.
    r" O_DIRECT                    (yes|Invalid argument|Operation not supported)",
    r" io_uring                    (yes|(io_uring_setup|mmap of the ring|io_uring without \w+): [A-Z][a-z ]+)",
    r" cudaHostRegister            (yes|CUDA sees no device \(error \d+\)|CUDA's runtime library is not there)",
    r" mlock                       (yes|only [\d,]+ bytes \(`ulimit -l`\))",
    # As wide as the widest of those.
    r" ─{28,}",
)


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, and what the page shows after it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown.rstrip().splitlines()


def printed(command: str) -> list[str]:
    """Runs a command; what it prints, without spaces at the ends of lines, as the page has it."""
    out = io.StringIO()
    words = command.replace("$PWD", str(Path.cwd())).split()
    with redirect_stdout(out), redirect_stderr(out):
        if words[0] == "moet":
            assert main.main(words[1:]) == 0, out.getvalue()
        else:
            assert words[:4] == ["bazel", "run", "//tools/experts/synthetic:write", "--"]
            assert synthetic.main(words[4:]) == 0, out.getvalue()
    return [line.rstrip() for line in out.getvalue().rstrip().splitlines()]


def same(there: str, shown: str) -> bool:
    return there == shown or any(re.fullmatch(one, there) and re.fullmatch(one, shown) for one in VARYING)


def test_page_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    ran = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if kind == "toml":
            assert "geometry is a file, `geometry.toml`" in PAGE
            Path("geometry.toml").write_text(block)
        elif kind == "python":
            exec(block, {})  # the page's own code
        for command, shown in commands(block) if not kind else ():
            there = printed(command)
            ran.append(command)
            paired = itertools.zip_longest(there, shown, fillvalue="(no line)")
            assert [expected if same(one, expected) else one for one, expected in paired] == shown, command
    assert len(ran) == PAGE.count("\n$ ") == 8
    with Checkpoint.open(tmp_path / "model") as found:
        for stated in re.finditer(THREADS, PAGE):
            bound = run.buffer_bytes(found, "quintal", int(stated["threads"]))
            assert stated["size"] == wording.size(bound) and f"with {stated['size']} of buffers" in PAGE


def test_sizes_of_the_whole_model() -> None:
    model = load.load("deepseek-v4.1-flash").model
    layers, hidden, intermediate = len(model.layers), model.hidden, model.intermediate
    assert f"H {hidden} and I {intermediate} (DeepSeek-V4.1-Flash) | | {layers} x {model.experts} |" in PAGE.replace(
        "layers x", "x"
    )
    two, four = planes.base_slot(hidden, intermediate), planes.fp4_slot(hidden, intermediate, scales=True)
    for form, size in (("MXFP4, as it is", four), ("2 bits", two)):
        assert f"| {form} | {size:,} | {size * layers * model.experts / 2**30:.1f} GiB |" in PAGE
    slots = two + planes.quintal_slot(hidden, intermediate)
    thread, counts = four + slots + run.THREAD_BYTES, layers * model.experts * run.EXPERT_BYTES
    assert f"buffers are {thread / 2**20:.0f} MiB a thread and {counts / 2**20:.0f} MiB;" in PAGE
    assert f"{four * layers * model.experts / 2**30:.2f} GiB for DeepSeek-V4.1-Flash" in PAGE
