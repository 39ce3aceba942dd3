"""What can be seen of the baselines without a GPU: their sums' oracle, what is taken for a link, and small copies."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from elftools.elf.elffile import ELFFile

from kernels.p2p_allreduce import bench
from kernels.p2p_allreduce.baselines import flashinfer, one_architecture, vllm, way

LIBRARY = Path("kernels/p2p_allreduce/p2p_allreduce.so")
CPU = torch.device("cpu")


@pytest.mark.parametrize("world", range(2, 9))
def test_sums_are_exact_in_any_order(world: int) -> None:
    """So that every way must come to the same bits, however it rounds in between."""
    count = 1000
    parts = [way.part(rank, count, CPU) for rank in range(world)]
    assert all(part.dtype == torch.bfloat16 for part in parts)
    exact = torch.stack(parts).double().sum(dim=0)
    assert torch.equal(way.total(world, count, CPU).double(), exact)
    for order in itertools.islice(itertools.permutations(parts), 50):
        running = order[0].clone()
        for part in order[1:]:
            running += part
        assert torch.equal(running.double(), exact)


def test_a_sum_that_lacks_a_rank_or_is_shifted_is_wrong() -> None:
    total = way.total(2, 64, CPU)
    assert not torch.equal(total, way.part(0, 64, CPU) * 2)
    assert not torch.equal(total, torch.roll(total, 16))


class Ranks:
    """What another rank says, beside this one."""

    world = 2

    def __init__(self, other: int) -> None:
        self.other = other

    def gather(self, value: Any) -> list[Any]:
        return [value, self.other]


@pytest.mark.parametrize(("off", "other"), [(1, 0), (0, 3), (1, 3)], ids=["here", "there", "both"])
def test_a_wrong_sum_on_any_rank_ends_the_bench_on_all(off: int, other: int) -> None:
    found = way.total(2, 8, CPU)
    way.require_right(Ranks(0), found, "NCCL")
    found[3] += off
    with pytest.raises(ArithmeticError, match=rf"NCCL, in a graph: wrong sums, of 8 a rank: \[{off}, {other}\]"):
        way.require_right(Ranks(other), found, "NCCL, in a graph")


def test_a_row_has_every_way_beside_a_dependent_launch() -> None:
    ways = {"": (4.0, 5.0), "dependent": (2.0, 3.0), "NCCL": (6.0, 9.0), "vLLM": (3.0, 4.0)}
    row = bench.row(3, 5000, 1e9, {name: bench.Times(*times) for name, times in ways.items()})
    assert (row["ranks"], row["bytes"], row["link GB/s"], row["floor us"]) == (3, 5000, 1.0, 10.0)
    assert (row["us"], row["p99 us"], row["dependent us"], row["vLLM p99 us"]) == (4.0, 5.0, 2.0, 4.0)
    assert (row["NCCL / dependent"], row["vLLM / dependent"], row["dependent share"]) == (3.0, 1.5, 5.0)
    assert not {"dependent / dependent", " / dependent"} & row.keys()


@pytest.mark.parametrize(
    ("rows", "linked"),
    [
        (["\tGPU0\tGPU1", " GPU0\tX\tOK", " GPU1\tOK\tX"], True),
        (["\tGPU0\tGPU1", " GPU0\tX\tNS", " GPU1\tNS\tX"], False),
        (["\tGPU0\tGPU1\tGPU2", " GPU0\tX\tOK\tNS", " GPU1\tOK\tX\tOK", " GPU2\tNS\tOK\tX"], False),
        (["nvidia-smi: command not found"], False),
        ([], False),
    ],
    ids=["nvlink", "pcie", "one-pair-is-not", "no-program", "nothing"],
)
def test_nvlink(rows: list[str], linked: bool) -> None:
    legend = ["", "Legend:", "", "  X    = Self", "  OK   = Status Ok", "  NS   = Not supported"]
    assert vllm.all_by_nvlink("\n".join(rows + legend)) is linked


@pytest.mark.parametrize(("world", "count"), [(2, 100), (4, 150), (8, 190)])
def test_configurations_are_those_that_flashinfer_tries(world: int, count: int) -> None:
    found = flashinfer.configs(world)
    assert len(set(found)) == len(found) == count
    assert all(world <= one.threads <= 1024 and 0 < one.blocks <= 128 for one in found)
    if world == 8:
        assert all(one.blocks % 4 == 0 for one in found if one.variant == 1)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernels.p2p_allreduce.baselines.one_architecture", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def found_in(path: Path) -> dict[int, list[bytes]]:
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".nv_fatbin")
        assert section is not None
        begin, size = section["sh_offset"], section["sh_size"]
    data = path.read_bytes()
    result: dict[int, list[bytes]] = {}
    for one in one_architecture.codes(data, begin, begin + size):
        result.setdefault(one.architecture, []).append(data[one.begin : one.end])
    return result


def test_a_copy_has_the_code_of_one_architecture(tmp_path: Path) -> None:
    output = tmp_path / "narrowed.so"
    done = run("--sm", 90, LIBRARY, output)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = found_in(LIBRARY), found_in(output)
    assert before.keys() == after.keys() == {90, 120}
    assert before[90] == after[90] and any(any(code) for code in before[120])
    assert not any(any(code) for code in after[120])
    # Nothing else changed: with that code back in its place it is the library again.
    whole, copy = LIBRARY.read_bytes(), output.read_bytes()
    differing = sum(a != b for a, b in zip(whole, copy, strict=True))
    assert 0 < differing <= sum(map(len, before[120]))


@pytest.mark.parametrize(
    ("architecture", "library", "said"),
    [
        (100, LIBRARY, "has no code for sm_100; expected one of sm_90, sm_120"),
        (90, Path(torch.__file__).parent / "lib/libshm.so", "has no section .nv_fatbin; expected a library with code"),
        (90, Path(__file__), "cannot be read as a library"),
        (90, Path("none.so"), "cannot be read as a library"),
    ],
    ids=["other", "no-gpu", "no-library", "no-file"],
)
def test_what_cannot_be_copied(architecture: int, library: Path, said: str, tmp_path: Path) -> None:
    done = run("--sm", architecture, library, tmp_path / "out.so")
    assert done.returncode == 1 and said in done.stderr and done.stderr.startswith(str(library))
    assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--vllm", "--flashinfer"])
def test_the_bench_names_a_library_that_is_not_there(option: str) -> None:
    command = [sys.executable, "-m", "kernels.p2p_allreduce.bench", option, "/none/such.so"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"argument {option}: /none/such.so: no such file; expected a library" in done.stderr
