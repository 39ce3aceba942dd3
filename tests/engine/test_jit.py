"""What serving compiles at run time compiles inside the image, for sm_120a."""

import pytest

from tests.engine.containers import DockerRunner, Outcome
from tests.engine.programs import Programs


def test_nvcc_with_the_standard_library_of_cuda(docker: DockerRunner, programs: Programs) -> None:
    assert docker.run(programs.probe("jit_nvcc")).document() == {"machine": 190, "sm": 120}


def test_deepgemm_header_at_128_row_pages(docker: DockerRunner, programs: Programs) -> None:
    document = docker.run(programs.probe("jit_deepgemm")).document()
    assert document["bytes"] > 10_000
    assert [line.strip() for line in document["spills"]] == [
        "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    ]


def test_triton(docker: DockerRunner, programs: Programs) -> None:
    document = docker.run(programs.probe("jit_triton", driver=True)).document()
    assert document["bytes"] > 1_000 and document["ptx"] is True


@pytest.mark.job("jit-flashinfer")
def test_flashinfer(outcome: Outcome) -> None:
    document = outcome.document()
    assert document["sm_120a"] is True and document["loaded"] is True
    assert document["path"].startswith("/var/lib/moet/")


@pytest.mark.job("jit-torch")
def test_torch_compile(outcome: Outcome) -> None:
    assert outcome.document() == {"equal": True}
