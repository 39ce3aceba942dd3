"""What package managers recorded is true of the image, and its certificates verify without help from the host."""

from typing import Any

import pytest

from tests.engine.containers import DockerRunner
from tests.engine.programs import MANIFEST, Programs


@pytest.fixture(scope="module")
def report(docker: DockerRunner, programs: Programs) -> dict[str, Any]:
    return docker.run(programs.probe("packages", MANIFEST)).document()


@pytest.mark.parametrize(("kind", "at_least"), [("records", 50_000), ("requirements", 300), ("debian", 4_000)])
def test_records_are_true(report: dict[str, Any], kind: str, at_least: int) -> None:
    assert report[kind]["faults"] == []
    assert report[kind]["checked"] >= at_least


def test_certificates_verify(docker: DockerRunner, programs: Programs) -> None:
    report = docker.run(programs.probe("https")).document()
    assert report["authorities"] > 100
    assert any("CN=ISRG Root X1" in name for name in report["names"])
    assert report["stranger"] == "unable to get local issuer certificate"
    assert report["trusting"] == "accepted"
