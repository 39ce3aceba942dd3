"""The modules in C++ that programs import, for what is done to each of them; modules of tests are not in it."""

MODULES = [
    "//kernels/cpu_experts:engine",
    "//serving/experts/storage:direct",
    "//tools/experts/native:codec",
]
