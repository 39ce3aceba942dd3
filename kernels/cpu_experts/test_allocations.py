"""A job allocates nothing, in any thread: counted by a library that stands before the C library's malloc."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu_experts.op import isas

_COUNTING = Path("kernels/cpu_experts/counting.so").resolve()

_PROGRAM = """
import ctypes, sys
import numpy as np
from kernels.cpu_experts import made_up
from kernels.cpu_experts.layout import Record
from kernels.cpu_experts.op import CpuExperts, host_function

count = ctypes.CDLL(None).moet_allocations
count.restype = ctypes.c_int64
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
run, wait = function(host_function("run")), function(host_function("wait"))
shape = Record(256, 128)
tier = CpuExperts(256, 128, 8, 4, isa=sys.argv[1], threads=3)
for expert in range(8):
    tier.set_record(expert, made_up.record(shape, expert))
x, out = made_up.activations((8, 256), 1), np.empty((8, 256), np.float32)
ids = np.random.default_rng(2).integers(-1, 8, (8, 4), dtype=np.int32)
job = tier.job(x, ids, np.ones((8, 4), np.float32), out32=out)
address = ctypes.c_void_p(job.address)

def counted(call):
    begin = count()
    for _ in range(300):
        call(address)
    return count() - begin

counted(run), counted(wait)
kept = [bytearray(1000) for _ in range(10)]
assert count() > 10 and np.isfinite(out).all()
# What Python itself allocates for a call is in both.
print(counted(run) - counted(wait))
"""


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "amx"])
def test_a_job_allocates_nothing(isa: str) -> None:
    if isa not in isas():
        pytest.skip(f"this CPU or system has no {isa}")
    environment = {**os.environ, "LD_PRELOAD": str(_COUNTING), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, isa], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0"]
