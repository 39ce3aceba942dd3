import pytest

from kernels.private import machine_code, nvcc


def test_elements() -> None:
    listing = "ELF file    1: op.1.sm_90a.cubin\nELF file    2: op.2.sm_120a.cubin\nPTX file    1: op.1.sm_90.ptx\n"
    assert machine_code.elements(listing) == [("op.1.sm_90a.cubin", "sm_90a"), ("op.2.sm_120a.cubin", "sm_120a")]


@pytest.mark.parametrize(
    "found",
    [
        [],
        ["sm_90a"],
        ["sm_90a", "sm_120"],
        ["sm_90a", "sm_120a", "sm_75"],
        ["sm_90a", "sm_120a", "sm_120a"],
    ],
)
def test_other_architectures(found: list[str]) -> None:
    with pytest.raises(machine_code.MachineCodeError, match=r"op\.o: has machine code for .*; expected sm_90a, sm_1"):
        machine_code.check("op.o", found, ["sm_90a", "sm_120a"])


def test_every_file_with_every_architecture() -> None:
    machine_code.check("family.so", ["sm_120a", "sm_90a", "sm_90a", "sm_120a"], ["sm_90a", "sm_120a"])


def test_options() -> None:
    assert nvcc.generate_code("sm_120a") == ["-gencode", "arch=compute_120a,code=sm_120a"]
