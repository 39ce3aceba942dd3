"""Build and load a FlashInfer module through FlashInfer's own JIT, for the cards that Moet serves."""

import json
import os

os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "12.0a"

from flashinfer.jit.activation import gen_act_and_mul_module  # type: ignore[import-not-found]


def main() -> None:
    """Build, load and report which functions the module has and which architectures ninja was told."""
    spec = gen_act_and_mul_module("silu")
    module = spec.build_and_load()
    commands = spec.ninja_path.read_text()
    found = hasattr(module, "silu_and_mul")
    print(json.dumps({"sm_120a": "sm_120a" in commands, "loaded": found, "path": str(spec.get_library_path())}))


main()
