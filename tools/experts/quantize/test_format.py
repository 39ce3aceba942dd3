"""docs/format-2bit.md against the code; the reader here is written from the page alone."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kernels.common import planes
from tools.experts.checkpoint import headers
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.checkpoint.schemes import Matrix
from tools.experts.native import codec
from tools.experts.quantize import codebooks, expert, facts, numpy_form
from tools.experts.quantize.run import BASE_KIND, DELTA_KINDS, run
from tools.experts.synthetic.synthetic import write

PAGE = Path("docs/format-2bit.md").read_text()

N, K = np.arange(16)[:, None], np.arange(64)[None, :]
NIBBLES = ((7 * N + 5 * K + K // 8) % 16).astype(np.uint8)
SCALES = (120 + (N + np.arange(2)[None, :]) % 4).astype(np.uint8)


def made() -> dict[str, bytes]:
    codes = planes.to_codes(NIBBLES)
    return {
        "codes": planes.pack_codes(codes).tobytes(),
        "nibbles": planes.pack_nibbles(NIBBLES).tobytes(),
        "scales": planes.pack_scales(SCALES).tobytes(),
        "quintal": planes.pack_quintal(NIBBLES).tobytes(),
    }


def test_bytes_of_the_example() -> None:
    lines = re.findall(r"^(\w+) +(\d+) bytes, from (\d+) +([0-9a-f ]+)$", PAGE, re.M)
    assert {line[0] for line in lines} == set(made()) and len(lines) == 7
    for name, size, at, text in lines:
        expected = bytes.fromhex(text)
        assert len(made()[name]) == int(size)
        assert made()[name][int(at) :][: len(expected)] == expected


def test_table_of_the_example() -> None:
    codes = planes.to_codes(NIBBLES)
    assert NIBBLES[0, [0, 1, 2, 3, 16, 17, 18, 19]].tolist() == [0, 5, 10, 15, 2, 7, 12, 1]
    assert codes[0, [0, 1, 2, 3, 16, 17, 18, 19]].tolist() == [2, 3, 1, 0, 2, 3, 1, 2]
    assert int.from_bytes(made()["quintal"][:3], "little") & 0xFFFFF == 0x3B52C == 300 + 1024 * 237


def weight(codes: bytes, delta: bytes, columns: int, n: int, k: int) -> int:
    """The nibble of a weight, out of planes that begin where these bytes do."""
    nb, tile, g = n // 16, n // 8 % 2, n % 8
    kb, k32, half, t, k4 = k // 64, k // 32 % 2, k // 16 % 2, k // 4 % 4, k % 4
    block, lane, byte = nb * (columns // 64) + kb, 4 * g + t, 4 * tile + 2 * k32 + half
    code = codes[block * 256 + lane * 8 + byte] >> 2 * k4 & 3
    start = block * 320
    record = delta[start + lane * 8 : start + lane * 8 + 8] + delta[start + 256 + lane * 2 : start + 258 + lane * 2]
    word = int.from_bytes(record, "little") >> 10 * byte & 1023
    index = word // (1, 5, 25, 125)[k4] % 5 + (5 if code in (0, 3) else 0)
    return index + (8 if code < 2 else 0)


def test_reader_from_the_page_alone() -> None:
    """One weight after the other, out of bytes, as the page says; for several blocks."""
    rows, columns = 32, 192
    nibbles = np.random.default_rng(0).integers(0, 16, (rows, columns), dtype=np.uint8)
    codes, delta = planes.pack_codes(planes.to_codes(nibbles)).tobytes(), planes.pack_quintal(nibbles).tobytes()
    for n in range(rows):
        for k in range(columns):
            assert weight(codes, delta, columns, n, k) == nibbles[n, k]


def test_tables() -> None:
    assert (
        "2 2 2 2 2 3 3 3 1 1 1 1 1\n0 0 0" in PAGE
        and planes.NIBBLE_TO_CODE.tolist() == [2] * 5 + [3] * 3 + [1] * 5 + [0] * 3
    )
    assert "nibbles 14 10 2 6" in PAGE and planes.CODE_TO_NIBBLE.tolist() == [14, 10, 2, 6]
    for kind in (BASE_KIND, *DELTA_KINDS.values()):
        assert f"`{kind}`" in PAGE
    assert re.search(rf"`quantizer_abi` \| {facts.QUANTIZER_ABI};", PAGE)
    limits = (codebooks.MOST_BIAS, codebooks.MOST_BIAS_SHARE, codebooks.LEAST_CANONICAL, codebooks.MOST_RMS_RATIO)
    assert limits == (0.005, 1 / 5, 0.9, 1.05)


@pytest.mark.parametrize(
    ("size", "formula", "found"),
    [
        ("7,077,888", "27 H I / 32", planes.base_slot(4096, 2048)),
        ("12,582,912", "3 H I / 2", planes.fp4_slot(4096, 2048)),
        ("13,369,344", "51 H I / 32", planes.fp4_slot(4096, 2048, scales=True)),
        ("7,864,320", "15 H I / 16", planes.quintal_slot(4096, 2048)),
    ],
)
def test_sizes(size: str, formula: str, found: int) -> None:
    assert f"| {formula} | {size} |" in PAGE and found == int(size.replace(",", ""))
    over, under = re.findall(r"\d+", formula)
    assert found == int(over) * 4096 * 2048 // int(under)


def test_all_forms_of_the_quantizer_make_the_example() -> None:
    one = Matrix("mxfp4", 16, 64, planes.join_nibbles(NIBBLES), SCALES, 1.0, "t")
    expected = made()["codes"] + made()["scales"]
    for kind, name in (("fp4", "nibbles"), ("quintal", "quintal")):
        base, delta = numpy_form.records([numpy_form.quantize(one, "sign")], kind)
        assert delta is not None and (base.tobytes(), delta.tobytes()) == (expected, made()[name])
        for isa in codec.isas():
            own, own_delta = np.zeros_like(base), np.zeros_like(delta)
            expert.quantize([one], "sign", own, own_delta, kind, isa)
            assert (own.tobytes(), own_delta.tobytes()) == (expected, made()[name])


def test_pack_read_with_the_page_alone(tmp_path: Path) -> None:
    """From the folder of a pack to the checkpoint's tensors: names, slots, planes, a quintal delta."""
    source = write(tmp_path / "m", "deepseek-v4-flash", layers=2, experts=2, hidden=128, intermediate=64, drafter=True)
    with Checkpoint.open(source) as opened:
        run(opened, tmp_path / "p", delta="quintal", threads=1)
    tensors = {
        name: np.fromfile(file, np.uint8, one.size, offset=one.offset).reshape(one.shape)
        for file in source.glob("*.safetensors")
        for name, one in headers.read(file)[1].items()
        if ".experts." in name
    }
    sidecar, behind = (json.loads((tmp_path / name / "experts.json").read_text()) for name in ("p", "p-quintal"))
    fields = "".join(re.findall(r"^\| (`[^|]+) \|", PAGE.split("In the sidecar:")[1].split("A reader must")[0], re.M))
    for field in re.findall(r"`([a-z_.]+)`", fields):
        outer, _, own = field.rpartition(".")
        assert own in (sidecar[outer] if outer else sidecar), field
    assert fields.count("`") == 24
    assert all(sidecar[one] == behind[one] for one in ("checkpoint", "zero_mode", "quantizer_abi"))
    hidden, inner, count = sidecar["extra"]["hidden"], sidecar["extra"]["intermediate"], sidecar["experts"]
    assert (sidecar["slot_bytes"], behind["slot_bytes"]) == (27 * hidden * inner // 32, 15 * hidden * inner // 16)
    records, deltas = (next((tmp_path / name).glob("records-*.bin")).read_bytes() for name in ("p", "p-quintal"))
    seen = 0
    for layer in sidecar["layers"]:
        rule = [one for one in sidecar["extra"]["names"] if layer >= one["first"]][-1]
        for e in range(count):
            at = (layer * count + e) * (-(-sidecar["slot_bytes"] // 4096) * 4096)
            of_delta = (layer * count + e) * (-(-behind["slot_bytes"] // 4096) * 4096)
            for matrix, rows, columns in (("w1", inner, hidden), ("w3", inner, hidden), ("w2", hidden, inner)):
                name = rule["names"][matrix].replace("{layer}", str(layer - rule["first"])).replace("{expert}", str(e))
                nibbles = planes.split_nibbles(tensors[name])
                scales = tensors[name.removesuffix("weight") + "scale"]
                codes, of_scales, delta = records[at:], records[at + rows * columns // 4 :], deltas[of_delta:]
                for n, k in np.random.default_rng(seen).integers(0, (rows, columns), (40, 2)).tolist():
                    assert weight(codes, delta, columns, n, k) == nibbles[n, k]
                    assert of_scales[(n // 16 * columns // 32 + k // 32) * 16 + n % 16] == scales[n, k // 32]
                at, of_delta = at + 9 * rows * columns // 32, of_delta + 5 * rows * columns // 16
                seen += 1
    assert seen == 3 * 2 * 3
