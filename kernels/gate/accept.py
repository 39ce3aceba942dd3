"""Shows how a family's machine code differs from the record, and puts it on record.

usage: bazel run //kernels/FAMILY:gate [-- --accept]
"""

import argparse
import os
import sys
from pathlib import Path

from kernels.gate import record
from tools.files import atomic


def main() -> int:
    """Runs the command line above; returns the exit status: 1 when there is a difference that was not accepted."""
    parser = argparse.ArgumentParser(description="compare the machine code of a family with the record")
    parser.add_argument("--report", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--accept", action="store_true", help="put what was measured on record")
    args = parser.parse_args()
    path = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), args.record)
    measured = record.read(args.report)
    if broken := record.violations(measured):
        print("\n".join(broken), file=sys.stderr)
        print(f"{args.record}: not written: the machine code breaks rules that no record can change", file=sys.stderr)
        return 1
    changed = record.differences(record.read(path), measured)
    print("\n".join(changed) or f"{args.record}: no difference")
    if not changed:
        return 0
    if not args.accept:
        print(f"{args.record}: {len(changed)} figures differ; to put them on record, repeat with -- --accept")
        return 1
    atomic.write(path, args.report.read_bytes())
    print(f"{args.record}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
