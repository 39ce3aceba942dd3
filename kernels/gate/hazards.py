"""Two checks of machine code by basalt: are its waits long enough, and can it be assembled to the same bits?

Neither is proof. The first rests on latencies that others measured on another card of the family, and on what the
compiler itself was seen to do; the second only shows that both read the code alike. An instruction that basalt
does not know is refused, which lowers the coverage and is no error; a wrong word is.
"""

from dataclasses import dataclass
from pathlib import Path

from basalt.asm.assemble import assemble_program
from basalt.disasm import Program, disassemble_kernels
from basalt.isa.database import IsaDatabase
from basalt.paths import ISA_DATABASE, LATENCIES, OBSERVED_STALLS
from basalt.toolchain import find_toolchain
from basalt.verify.hazards import Severity, verify_program
from basalt.verify.latency import LatencyModel
from basalt.verify.observed import ObservedStalls


@dataclass(frozen=True)
class Verdict:
    """Of one kernel: hazards, surest first; and how many words came back exact, were refused, or came back wrong."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    incomplete: bool
    exact: int
    refused: int
    wrong: int


class Checker:
    """The checks, with their tables loaded once."""

    def __init__(self, tools: Path) -> None:
        """`tools` is the folder of ptxas and nvdisasm."""
        self._tools = find_toolchain(tools)
        self._database = IsaDatabase.read(ISA_DATABASE)
        self._model = LatencyModel.assumed().overlay(LATENCIES)
        self._observed = ObservedStalls.read(OBSERVED_STALLS)

    def check(self, cubin: Path) -> dict[str, Verdict]:
        """Returns the verdict on each kernel of a cubin."""
        return {name: self._verdict(program) for name, program in disassemble_kernels(self._tools, cubin).items()}

    def _verdict(self, program: Program) -> Verdict:
        report = verify_program(program, self._model, observed=self._observed)
        assembled = assemble_program(program, self._database)
        exact = wrong = 0
        for instruction, word in zip(program.instructions, assembled.words, strict=True):
            if instruction.word is not None and word is not None:
                exact += word.value == instruction.word.value
                wrong += word.value != instruction.word.value
        return Verdict(
            errors=tuple(h.describe() for h in report.by_severity(Severity.ERROR)),
            warnings=tuple(h.describe() for h in report.by_severity(Severity.WARNING)),
            incomplete=bool(report.incomplete_graph),
            exact=exact,
            refused=len(assembled.refused),
            wrong=wrong,
        )
