"""Reads the sm_120a machine code of a family, and writes what the gate compares.

usage: report.py --tools FOLDER --family NAME --architecture SM ... --library FILE --cubin FILE ... --output FILE
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from kernels.gate import disassembly, facts, hazards, occupancy
from kernels.private import machine_code

SCHEMA = "moet.kernel-gate.v1"
_RESERVED = occupancy.SM_120.shared_reserved_a_block


def text_hashes(cubin: Path) -> dict[str, str]:
    """SHA-256 of each kernel's code, by symbol."""
    with cubin.open("rb") as data:
        return {
            section.name.removeprefix(".text."): hashlib.sha256(section.data()).hexdigest()
            for section in ELFFile(data).iter_sections()
            if section.name.startswith(".text.")
        }


def kernel(
    symbol: str,
    fact: facts.Fact,
    digest: str,
    used: disassembly.Resources,
    names: Sequence[str],
    verdict: hazards.Verdict,
) -> dict[str, Any]:
    """Returns one kernel's part of the report."""
    # The compiler counts what the runtime reserves as static.
    static = max(0, used.shared - _RESERVED)
    shared = static + fact.dynamic_shared
    fit = occupancy.blocks(fact.threads, used.registers, shared)
    matrix = disassembly.total(names, disassembly.MATRIX)
    violations = [*verdict.errors]
    if disassembly.WAIT not in names:
        violations.append("no wait for the kernel ahead, which dependent launches need")
    if local := disassembly.total(names, disassembly.FORBIDDEN):
        violations.append(f"{local} accesses of local memory; expected none")
    if used.stack or used.local:
        violations.append(f"{used.stack} bytes of stack and {used.local} of local memory; expected none")
    if matrix != fact.mma:
        violations.append(f"{matrix} matrix instructions; the launch table plans {fact.mma}")
    if shared > occupancy.SM_120.shared_a_block:
        violations.append(f"{shared} bytes of shared memory a block; sm_120 has {occupancy.SM_120.shared_a_block}")
    if fit == 0:
        violations.append("no block fits on a multiprocessor of sm_120")
    if verdict.wrong:
        violations.append(f"{verdict.wrong} instruction words that basalt assembles to other bits")
    return {
        "symbol": symbol,
        "text_sha256": digest,
        "registers": used.registers,
        "threads": fact.threads,
        "static_shared": static,
        "dynamic_shared": fact.dynamic_shared,
        "blocks_a_multiprocessor": fit,
        "warps_a_multiprocessor": f"{fit * -(-fact.threads // 32)}/{occupancy.SM_120.warps}",
        "matrix_instructions": matrix,
        "loads_before_wait": disassembly.total(disassembly.before_wait(names), disassembly.LOADS),
        "instructions": disassembly.census(names),
        "assembled": {"exact": verdict.exact, "refused": verdict.refused, "wrong": verdict.wrong},
        "hazards_suspected": list(verdict.warnings),
        "every_path_followed": not verdict.incomplete,
        "violations": violations,
    }


def measure(
    tools: Path, family: str, architectures: Sequence[str], library: Path, cubins: Sequence[Path]
) -> dict[str, Any]:
    """Returns the report.

    Raises FactsError or MachineCodeError when the library is not what it should be.
    """
    found = [architecture for _, architecture in machine_code.list_elements(tools / "cuobjdump", library)]
    machine_code.check(library.name, found, architectures)
    checker = hazards.Checker(tools)
    hashes: dict[str, str] = {}
    used: dict[str, disassembly.Resources] = {}
    names: dict[str, list[str]] = {}
    verdicts: dict[str, hazards.Verdict] = {}
    for cubin in cubins:
        hashes |= text_hashes(cubin)
        used |= disassembly.resources(disassembly.run(tools / "cuobjdump", "--dump-resource-usage", cubin))
        names |= disassembly.instructions(disassembly.run(tools / "nvdisasm", "-c", cubin))
        verdicts |= checker.check(cubin)
    launched = facts.match(facts.read(library), sorted(hashes))
    kernels = {
        fact.name: kernel(symbol, fact, hashes[symbol], used[symbol], names[symbol], verdicts[symbol])
        for symbol, fact in sorted(launched.items(), key=lambda item: (item[1].kernel, item[1].form))
    }
    exact, refused = (sum(k["assembled"][key] for k in kernels.values()) for key in ("exact", "refused"))
    return {
        "schema": SCHEMA,
        "family": family,
        "library_has": sorted(set(found)),
        "read": "sm_120a",
        "coverage_percent": 100 * exact // max(1, exact + refused),
        "kernels": kernels,
    }


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="read the machine code of a family of kernels")
    parser.add_argument("--tools", type=Path, required=True, help="folder of cuobjdump, nvdisasm and ptxas")
    parser.add_argument("--family", required=True, help="name of the family")
    parser.add_argument("--architecture", action="append", required=True, help="what the library must have")
    parser.add_argument("--library", type=Path, required=True, help="the shared library")
    parser.add_argument("--cubin", type=Path, action="append", required=True, help="sm_120a code of one .cu")
    parser.add_argument("--output", type=Path, required=True, help="where to, JSON")
    args = parser.parse_args()
    try:
        report = measure(args.tools, args.family, args.architecture, args.library, args.cubin)
    except (facts.FactsError, machine_code.MachineCodeError) as error:
        print(f"kernel gate: {error}", file=sys.stderr)
        return 1
    args.output.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
