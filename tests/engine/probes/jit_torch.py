"""Compile C++ through torch's inductor on the CPU, which is what torch.compile does for host code."""

import json

import torch


def main() -> None:
    """Compile a small function, run it and report whether it agrees with eager execution."""

    def rotate(value: torch.Tensor) -> torch.Tensor:
        return torch.cat([-value[1:], value[:1]]) * 2

    value = torch.arange(8, dtype=torch.float32)
    equal = torch.equal(torch.compile(rotate)(value), rotate(value))
    print(json.dumps({"equal": equal}))


main()
