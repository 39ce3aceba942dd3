"""What a tier is not given: sizes, records, and memory of calls."""

import math

import numpy as np
import pytest

from kernels.cpu_experts import made_up, topology
from kernels.cpu_experts.layout import Record
from kernels.cpu_experts.made_tier import made
from kernels.cpu_experts.op import CpuExperts, host_function


def test_misuse_of_a_tier() -> None:
    for arguments, message in (
        ({"hidden": 100}, "hidden is 100; expected a positive multiple of 128"),
        ({"hidden": 1 << 21}, "hidden is 2097152; expected 1 to 1048576"),
        ({"intermediate": 1 << 40}, "intermediate is 1099511627776; expected 1 to 1048576"),
        ({"experts": 0}, "experts is 0"),
        ({"slots": 65}, "slots is 65; expected 1 to 64"),
        ({"activations": "int4"}, "activations is 'int4'; expected int16 or int8"),
        ({"limit": 0.0}, "limit is 0.0"),
        ({"limit": math.nan}, "limit is nan"),
        ({"isa": "neon"}, "isa is 'neon'; expected auto or one of scalar"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": 1, "cores": [0]}, "both given"),
        ({"cores": []}, "cores is"),
        ({"cores": [100000]}, r"cores is \[100000\]; expected different ones"),
        ({"cores": [topology.pick()[0]] * 2}, "expected different ones"),
        ({"spin": -1.0}, "spin is -1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            CpuExperts(**{"hidden": 128, "intermediate": 128, "experts": 1, "slots": 1, **arguments})  # type: ignore[arg-type]


def test_misuse_of_records() -> None:
    shape = Record(128, 128)
    tier = made(shape, {})
    good = made_up.record(shape, 1)
    with pytest.raises(ValueError, match=f"has {shape.size - 1} bytes; expected {shape.size}"):
        tier.set_record(0, good[:-1])
    with pytest.raises(ValueError, match="expected a multiple of 64"):
        tier.set_record(0, made_up.aligned(shape.size + 64)[1 : 1 + shape.size])
    with pytest.raises(ValueError, match="expert is 8; expected 0 to 7"):
        tier.set_record(8, good)
    with pytest.raises(TypeError, match="is int8; expected uint8"):
        tier.set_record(0, good.view(np.int8))
    with pytest.raises(TypeError, match="is bytes; expected a numpy array"):
        tier.set_record(0, bytes(good))
    with pytest.raises(KeyError):
        tier.place(3)


def test_outputs_on_other_memory_of_the_call() -> None:
    tier = made(Record(128, 128), {}, slots=2)
    room = np.zeros(4 * 2 * 128, np.uint8)
    out = room.view(np.float32).reshape(2, 128)
    clean: dict[str, np.ndarray] = {
        "x": made_up.activations((2, 128), 1),
        "ids": np.zeros((2, 2), np.int32),
        "weights": np.ones((2, 2), np.float32),
    }
    for name, its in (
        ("x", room[512:].view(np.uint16).reshape(2, 128)),
        ("ids", room[-16:].view(np.int32).reshape(2, 2)),
        ("weights", room[16:32].view(np.float32).reshape(2, 2)),
    ):
        with pytest.raises(ValueError, match=f"out32 overlaps {name}; expected memory of its own"):
            tier.job(*{**clean, name: its}.values(), out32=out)
    with pytest.raises(ValueError, match="out16 overlaps out32"):
        tier.job(*clean.values(), out32=out, out16=room[512:].view(np.uint16).reshape(2, 128))
    beside = np.zeros(4 * 128 + 2 * 128, np.uint8)
    tier.job(clean["x"][:1], clean["ids"][:1], clean["weights"][:1], out32=beside[:512].view(np.float32)[None],
             out16=beside[512:].view(np.uint16)[None])  # fmt: skip


def test_misuse_of_jobs() -> None:
    tier = made(Record(128, 128), {}, slots=2)
    x, ids, weights = made_up.activations((2, 128), 1), np.zeros((2, 2), np.int32), np.ones((2, 2), np.float32)
    out = np.empty((2, 128), np.float32)
    read_only = out.copy()
    read_only.flags.writeable = False
    for changed, kind, message in (
        ({"x": x[:, :64]}, ValueError, r"x is \[2, 64\]; expected \[any, 128\]"),
        ({"x": x.view(np.int16)}, TypeError, "x is int16; expected bfloat16 or uint16"),
        ({"x": made_up.activations((9, 128), 1)}, ValueError, "x has 9 tokens; expected 1 to 8"),
        ({"x": x[:0]}, ValueError, "x has 0 tokens"),
        ({"x": made_up.activations((2, 256), 1)[:, ::2]}, ValueError, "x is not contiguous"),
        ({"x": x.tolist()}, TypeError, "x is list; expected a numpy array or a torch tensor"),
        ({"ids": ids.astype(np.int64)}, TypeError, "ids is int64; expected int32"),
        ({"ids": ids[:1]}, ValueError, r"ids is \[1, 2\]; expected \[2, any\]"),
        ({"ids": np.zeros((2, 3), np.int32)}, ValueError, "ids has 3 slots; expected 1 to 2"),
        ({"weights": weights[:, :1]}, ValueError, r"weights is \[2, 1\]; expected \[2, 2\]"),
        ({"weights": weights.astype(np.float64)}, TypeError, "weights is float64"),
        ({"out32": None}, ValueError, "out32 and out16 are both missing"),
        ({"out32": out[:1]}, ValueError, r"out32 is \[1, 128\]"),
        ({"out32": read_only}, ValueError, "out32 is read only"),
        ({"out16": out}, TypeError, "out16 is float32"),
        ({"base": 8}, ValueError, "base is 8; expected 0 to 7"),
        ({"base": -1}, ValueError, "base is -1"),
    ):
        given = {"x": x, "ids": ids, "weights": weights, "out32": out, **changed}
        with pytest.raises(kind, match=message):
            tier.job(given.pop("x"), given.pop("ids"), given.pop("weights"), **given)
    with pytest.raises(TypeError, match="x is list; expected a numpy array or a torch tensor"):
        tier(x.tolist(), ids, weights)
    for name, value in (("x", x), ("ids", ids), ("weights", weights)):
        swapped = {"x": x, "ids": ids, "weights": weights, name: value.astype(value.dtype.newbyteorder())}
        with pytest.raises(TypeError, match=f"{name} has its bytes in another order than this machine"):
            tier.job(*swapped.values(), out32=out)
    room = np.empty(2 * 128 * 2 + 1, np.uint8)[1:].view(np.uint16).reshape(2, 128)
    with pytest.raises(ValueError, match="expected a multiple of 2"):
        tier.job(room, ids, weights, out32=out)
    with pytest.raises(ValueError, match="tokens is 9"):
        tier.isa(9)
    with pytest.raises(ValueError, match="host function 'stop'; expected one of submit, wait, run"):
        host_function("stop")
