"""The programs that take long: they run two at a time beside the tests, longest first."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.engine import serving, upstream
from tests.engine.containers import Container, Outcome, Runner
from tests.engine.programs import Programs


@dataclass(frozen=True)
class Job:
    """A program by name; it runs on the image, or on the image without steps."""

    name: str
    container: Callable[[Programs], Container]
    on_base: bool = False

    def run(self, programs: Programs, image: Runner, base: Runner) -> Outcome:
        """Run it to its end."""
        return (base if self.on_base else image).run(self.container(programs))


JOBS = (
    Job("vllm", lambda programs: programs.vllm_tests("vllm-report", upstream.TESTS, upstream.DESELECTED)),
    Job("steps", lambda programs: programs.step_tests("steps-report")),
    Job("steps-on-base", lambda programs: programs.step_tests("base-report"), on_base=True),
    Job("serve-parser", lambda programs: programs.serve_parser(serving.questions(serving.line()))),
    Job("all-reduce", lambda programs: programs.all_reduce()),
    Job("serve-help", lambda programs: programs.serve_help()),
    Job("jit-torch", lambda programs: programs.probe("jit_torch")),
    Job("jit-flashinfer", lambda programs: programs.probe("jit_flashinfer", driver=True)),
)
