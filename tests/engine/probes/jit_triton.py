"""Compile a Triton kernel to a cubin for compute capability 12.0, without a device."""

import json
import tempfile
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit  # type: ignore[untyped-decorator]
def scale(source, target, factor, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """target[i] = source[i] * factor for i < size."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + at, tl.load(source + at, at < size) * factor, at < size)


def main() -> None:
    """Compile and report the sizes of what came out."""
    types = {"source": "*fp32", "target": "*fp32", "factor": "fp32", "size": "i32", "block": "constexpr"}
    source = ASTSource(fn=scale, signature=types, constexprs={"block": 256})
    built = triton.compile(source, target=GPUTarget("cuda", 120, 32))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "scale.cubin")
        path.write_bytes(built.asm["cubin"])
        print(json.dumps({"bytes": path.stat().st_size, "ptx": ".target sm_120" in built.asm["ptx"]}))


main()
