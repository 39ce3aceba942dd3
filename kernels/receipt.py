"""Runs every test and bench of the kernels on a machine with a GPU, and writes what ran where and what came out.

usage: python3 -m kernels.receipt --libraries FOLDER --commit NAME --output FOLDER [--family NAME ...]
           [--beside FAMILY:OPTION=LIBRARY ...]

FOLDER has <family>.so, as //kernels:bundle makes it. The machine needs Python, torch (CUDA), numpy, pytest
and compute-sanitizer. Writes receipt.json and receipt.md; the exit status is 1 when anything failed.
--beside p2p_allreduce:vllm=X.so has that family's bench called with --vllm X.so.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.testing import table

SCHEMA = "moet.kernel-receipt.v1"
ROOT = Path(__file__).parent.parent
# Libraries built with the shared memory of sm_120 on every architecture; only tested.
NARROW = "narrow"
NARROW_TESTS = "tests with sm_120's shared memory"
_TOOLS = ("memcheck", "racecheck")


def families() -> list[str]:
    """Every family that has tests on a GPU."""
    return sorted(path.parent.name for path in (ROOT / "kernels").glob("*/test_gpu.py"))


def sha256(path: Path) -> str:
    """Of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({type(error).__name__})"


def link(matrix: str) -> str:
    """Returns how the first two GPUs are linked, from what `nvidia-smi topo -m` prints: NV18, PHB, ..., unknown."""
    rows = [line.split() for line in matrix.splitlines() if line.startswith("GPU0")]
    return rows[0][2] if rows and len(rows[0]) > 2 else "unknown"


def machine() -> dict[str, str]:
    """What the receipt says of the hardware and the software below the kernels."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    several = {"link": link(_said("nvidia-smi", "topo", "-m"))} if torch.cuda.device_count() > 1 else {}
    return several | {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "memory_bytes": str(properties.total_memory),
        "gpus": str(torch.cuda.device_count()),
        "driver": _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0],
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def run_tests(family: str, environment: dict[str, str], wrapper: Sequence[str] = (), only: str = "") -> dict[str, Any]:
    """Runs the GPU tests of a family with pytest; returns counts, seconds and the messages of what failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [*wrapper, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
        command += ["--import-mode=importlib", f"--junitxml={report}", f"kernels/{family}/test_gpu.py"]
        command += ["-m", only] if only else []
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        print(done.stdout[-2000:], done.stderr[-1000:], flush=True)
        suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    if suite is None:
        return {"status": done.returncode, "failures": [(done.stdout + done.stderr)[-2000:]]}
    count = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    broken = [
        f"{case.get('name')}: {problem.get('message', '')[:300]}"
        for case in suite.iter("testcase")
        for problem in [*case.findall("failure"), *case.findall("error")]
    ]
    return {
        "status": done.returncode,
        "passed": count["tests"] - count["failures"] - count["errors"] - count["skipped"],
        "failed": count["failures"] + count["errors"],
        "skipped": count["skipped"],
        "seconds": round(time.monotonic() - began, 1),
        "failures": broken,
    }


def sanitize(family: str, tool: str, environment: dict[str, str]) -> dict[str, Any]:
    """Runs the marked tests of a family under a tool of compute-sanitizer, which looks at its kernels alone."""
    wrapper = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "86", "--kernel-name", f"kns={family}"]
    return run_tests(family, environment, wrapper, "sanitizer")


def self_test(environment: dict[str, str], chosen: Sequence[str]) -> dict[str, Any]:
    """Runs what an image runs on its user's card: every family once against its oracle."""
    command = [sys.executable, "-m", "kernels.selftest", "--json"]
    command += [word for family in chosen for word in ("--family", family)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    print(done.stdout, done.stderr[-2000:], flush=True)
    if not done.stdout.startswith("{"):
        return {"status": done.returncode or 1, "ok": False, "error": done.stderr[-2000:], "results": []}
    return {"status": done.returncode, **json.loads(done.stdout)}


def beside(text: str) -> tuple[str, list[str]]:
    """A family and the options that its bench gets: p2p_allreduce and --vllm X.so, of p2p_allreduce:vllm=X.so.

    Raises ArgumentTypeError, which argparse prints.
    """
    family, colon, rest = text.partition(":")
    option, equals, library = rest.partition("=")
    if not (family and colon and option and equals):
        raise argparse.ArgumentTypeError(f"{text}: expected FAMILY:OPTION=LIBRARY")
    if not Path(library).is_file():
        raise argparse.ArgumentTypeError(f"{library}: no such file; expected a library")
    return family, [f"--{option}", library]


def bench(family: str, environment: dict[str, str], options: Sequence[str] = ()) -> dict[str, Any]:
    """Runs the bench of a family."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures.json")
        command = [sys.executable, "-m", f"kernels.{family}.bench", "--json", str(figures), *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        print(done.stdout, done.stderr[-2000:], flush=True)
        if done.returncode or not figures.exists():
            return {"status": done.returncode or 1, "failures": [done.stderr[-2000:]]}
        return {"status": 0, **json.loads(figures.read_text())}


def summary(receipt: dict[str, Any]) -> str:
    """The receipt for people, in Markdown."""
    where = receipt["machine"]
    lines = [
        f"# Kernels on {where['gpu']}",
        "",
        f"Sources: {receipt['commit']}. Compute capability {where['compute_capability']}, driver {where['driver']}, "
        f"torch {where['torch']}, CUDA {where['cuda']}, Python {where['python']}. {receipt['date']}.",
        "",
        "Ran on this GPU alone. Figures are shares of this GPU's own floor; they say nothing of another one.",
    ]
    if linked := where.get("link"):
        kind, other = ("NVLink", "PCIe") if linked.startswith("NV") else ("PCIe", "NVLink")
        lines[-1] = f"Ran on {where['gpus']} such GPUs of one host, linked by {kind} ({linked} in nvidia-smi topo -m). "
        lines[-1] += "Figures are shares of such a GPU's own floor; "
        lines[-1] += f"they say nothing of another, nor {kind}'s of {other}."
    if tested := receipt.get("self_test"):
        count = len({result["family"] for result in tested["results"]})
        lines += ["", f"Self-test ({count} families): {'ok' if tested['ok'] else 'FAILED'}."]
    for family, results in receipt["families"].items():
        lines += ["", f"## {family}", "", f"`{family}.so` sha256 `{results['library_sha256']}`", ""]
        for name in ("tests", NARROW_TESTS, *_TOOLS):
            if (ran := results.get(name)) is None:
                continue
            counts = ", ".join(f"{ran.get(what, 0)} {what}" for what in ("passed", "failed", "skipped"))
            lines.append(f"- {name}: {counts}" + (f", exit status {ran['status']}" if ran["status"] else ""))
        figures = results.get("bench", {})
        if "rows" in figures:
            rate = figures["copy_bytes_per_second"] / 1e9
            lines += ["", f"A copy moves {rate:.0f} GB/s; the floor is the least bytes over that.", ""]
            others = figures.get("beside_sha256", {})
            lines += [f"Beside: {name}, sha256 `{digest}`\n" for name, digest in others.items()]
            lines.append(table.markdown(figures["rows"]))
    return "\n".join(lines) + "\n"


def write(receipt: dict[str, Any], folder: Path) -> None:
    """Writes receipt.json and receipt.md; also while a part is missing, so that what ran is not lost."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "receipt.json").write_text(json.dumps(receipt, indent=2) + "\n")
    (folder / "receipt.md").write_text(summary(receipt))


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="run every test and bench of the kernels on this GPU")
    parser.add_argument("--libraries", type=Path, required=True, help="folder of the families' .so files")
    parser.add_argument("--commit", required=True, help="what the sources are: a commit, with + if changed")
    parser.add_argument("--output", type=Path, required=True, help="folder for receipt.json and receipt.md")
    parser.add_argument("--family", action="append", choices=families(), help="only this one; may be repeated")
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        type=beside,
        metavar="FAMILY:OPTION=LIBRARY",
        help="what a family's bench measures beside ours",
    )
    parser.add_argument("--without", action="append", default=[], choices=["sanitizer", "bench"], help="leave out")
    args = parser.parse_args()
    chosen = args.family or families()
    for family, _ in args.beside:
        if family not in chosen:
            parser.error(f"argument --beside: {family}: expected one of {', '.join(chosen)}")
    environment = {**os.environ, "MOET_KERNELS": str(args.libraries.resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
    narrow = args.libraries.resolve() / NARROW
    narrowly = {**environment, "MOET_KERNELS": str(narrow)}
    receipt: dict[str, Any] = {
        "schema": SCHEMA,
        "commit": args.commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "families": {},
    }
    tools = [] if "sanitizer" in args.without or not shutil.which("compute-sanitizer") else _TOOLS
    for family in chosen:
        receipt["families"][family] = {"library_sha256": sha256(args.libraries / f"{family}.so")}
    with concurrent.futures.ThreadPoolExecutor() as side_by_side:
        running = {}
        for family in chosen:
            running[family, "tests"] = side_by_side.submit(run_tests, family, environment)
            if (narrow / f"{family}.so").exists():
                running[family, NARROW_TESTS] = side_by_side.submit(run_tests, family, narrowly)
            for tool in tools:
                running[family, tool] = side_by_side.submit(sanitize, family, tool, environment)
        for (family, name), one in running.items():
            receipt["families"][family][name] = one.result()
            write(receipt, args.output)
    receipt["self_test"] = self_test(environment, chosen)
    # With nothing beside them: these measure.
    for family in chosen if "bench" not in args.without else []:
        options = [word for name, words in args.beside if name == family for word in words]
        receipt["families"][family]["bench"] = bench(family, environment, options)
        write(receipt, args.output)
    parts = [part for results in receipt["families"].values() for part in results.values() if isinstance(part, dict)]
    parts.append(receipt["self_test"])
    return 1 if any(part["status"] for part in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
