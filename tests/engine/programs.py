"""What the tests run inside the image, and the folders that they bring along."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from serving.preflight import collective_run
from tests.engine import inputs
from tests.engine.containers import Container

PYTHON = "/usr/bin/python3.11"
SITE = "/usr/local/lib/python3.11/dist-packages"
MANIFEST = "/usr/share/moet/manifest.json"
# Where a container runtime puts the host's driver.
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# humming starts two builds beside every import of vLLM; here they would only take the processor from the tests.
_QUIET = {"HUMMING_DISABLE_PARALLEL_BUILD": "1", "PYTHONUNBUFFERED": "1"}
# What the tests of the steps hold against vLLM: the KV disk tier's housekeeping, what a first
# start depends on, and how the KV cache is laid out.
_PACKAGES = ["serving.kvcache", "serving.plan", "serving.startup", "tools.cli"]
_PYTEST = ["pytest", "pytest-asyncio", "pytest-timeout", "tblib", "iniconfig", "pluggy", "pygments", "packaging"]


@dataclass(frozen=True)
class Programs:
    """Containers for the tests, over folders of real files below `folder`."""

    folder: Path

    @classmethod
    def prepare(cls, folder: Path) -> "Programs":
        """Copy what the containers mount to `folder`: pytest, the driver's stubs, the probes, the tests.

        Raises:
            MissingInputError: an input is not given.
        """
        inputs.copy_wheels(_PYTEST, folder / "pytest")
        for name in ("probes", "plugins"):
            shutil.copytree(Path(__file__).parent / name, folder / name)
        for name in _PACKAGES:
            inputs.copy_package(name, folder / "plugins")
        (folder / "steps").mkdir()
        for test in inputs.paths("MOET_STEP_TESTS"):
            shutil.copy(test, folder / "steps")
        inputs.unpack_sdist(inputs.path("MOET_VLLM_SDIST"), folder / "vllm")
        (folder / "driver").mkdir()
        shutil.copy(inputs.path("MOET_STUB_LIBCUDA"), folder / "driver" / "libcuda.so.1")
        shutil.copy(inputs.path("MOET_STUB_NVML"), folder / "driver" / "libnvidia-ml.so.1")
        return cls(folder)

    @property
    def driver(self) -> dict[str, Path]:
        """Mounts of the two stub libraries, where a container runtime mounts a driver's."""
        return {f"{_LIBRARIES}/{library.name}": library for library in sorted((self.folder / "driver").iterdir())}

    def probe(self, name: str, *arguments: str, driver: bool = False) -> Container:
        """A program of probes/, run by the image's interpreter."""
        mounts = {"/probes": self.folder / "probes", **(self.driver if driver else {})}
        return Container([f"/probes/{name}.py", *arguments], entrypoint=PYTHON, mounts=mounts)

    def python(self, code: str) -> Container:
        """A line of Python, run by the image's interpreter with the driver's stubs."""
        return Container(["-c", code], entrypoint=PYTHON, mounts=self.driver, environment=_QUIET)

    def serve_help(self) -> Container:
        """The server's help, through the entry point."""
        return Container(["serve", "--help"], mounts=self.driver, environment=_QUIET, hardened=True)

    def serve_parser(self, questions: Sequence[str]) -> Container:
        """The server's parser, asked `questions`: the arguments of probes/serve_parser.py."""
        return replace(self.probe("serve_parser", *questions, driver=True), environment=_QUIET)

    def all_reduce(self) -> Container:
        """The preflight's program, as a preflight runs it, but with processes on CPUs."""
        words = ["exec", "python3.11", "-c", collective_run.text(), "--tp=2", "--backend=gloo", "--silent-s=600"]
        return Container(words, hardened=True)

    def step_tests(self, report: str) -> Container:
        """The tests of the steps and the regression tests."""
        return self._pytest(report, "steps", ["/steps"])

    def vllm_tests(self, report: str, tests: Sequence[str], deselected: Sequence[str]) -> Container:
        """Upstream's own tests, `deselected` ids left out."""
        options = [f"--deselect={name}" for name in deselected]
        return self._pytest(report, "vllm", ["-p", "skip_global_cleanup", *options, *tests])

    def outcomes(self, report: str) -> dict[str, str]:
        """`{"module::test": "passed", "failed" or "skipped"}`, as a container's pytest wrote them to `report`."""
        tree = ElementTree.parse(self.folder / report / "report.xml")
        found = {}
        for case in tree.iter("testcase"):
            kinds = {child.tag for child in case}
            state = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            module = str(case.get("classname")).rpartition(".")[2]
            found[f"{module}::{case.get('name')}"] = state
        return found

    def _pytest(self, report: str, tree: str, arguments: Sequence[str]) -> Container:
        shared = self.folder / report
        shared.mkdir()
        shared.chmod(0o777)
        options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
        options += ["--timeout=600", "--durations=5", "--junitxml=/report/report.xml"]
        return Container(
            ["-m", "pytest", *options, *arguments],
            entrypoint=PYTHON,
            mounts={**{f"/{name}": self.folder / name for name in ("pytest", "plugins", tree)}, **self.driver},
            shared={"/report": shared},
            environment={"PYTHONPATH": "/pytest:/plugins", "HF_HUB_OFFLINE": "1", **_QUIET},
            folder=f"/{tree}",
            seconds=2400,
        )
