"""docs/format-store.md against the code: its example's bytes, and its reader."""

import hashlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common import planes
from kernels.cpu_experts import layout
from serving.experts.storage import made_up, sidecar
from serving.experts.storage.header import Header

PAGE = Path("docs/format-store.md").read_text(encoding="utf-8")
RECORDS = {(1, 0): b"123456789", (1, 1): b"abcdefghi"}
EXAMPLE = Header(
    kind="w2-pack",
    tag="worked example",
    layers=(1,),
    experts=2,
    slot_bytes=9,
    checkpoint="5e" * 32,
    zero_mode="auto",
    quantizer_abi=1,
    extra={"hidden": 64},
)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    made_up.write(tmp_path, EXAMPLE, RECORDS)
    return tmp_path


def reader() -> Any:
    names: dict[str, Any] = {}
    exec(PAGE.partition("```python\n")[2].partition("```")[0], names)
    return names["read"]


def test_example_has_the_bytes_of_the_page(example: Path) -> None:
    text = (example / "experts.json").read_text()
    content = hashlib.sha256(text.encode()).hexdigest()
    assert f"$ cat experts.json\n{text}$ sha256sum experts.json\n{content}  experts.json\n" in PAGE
    raw = (example / f"records-{content[:16]}.bin").read_bytes()
    shown = bytearray(len(raw))
    for at, words in re.findall(r"^([0-9a-f]{8}): ((?:[0-9a-f]{4} ){8})", PAGE, re.MULTILINE):
        shown[int(at, 16) : int(at, 16) + 16] = bytes.fromhex(words)
    assert raw == shown


def test_reader_of_the_page_reads(example: Path, tmp_path: Path) -> None:
    read = reader()
    assert {key: read(example, *key) for key in RECORDS} == RECORDS
    of = made_up.header()
    made_up.write(tmp_path / "other", of)
    assert all(read(tmp_path / "other", *key) == record for key, record in made_up.records(of).items())


def test_reader_of_the_page_refuses(example: Path) -> None:
    path = next(example.glob("records-*.bin"))
    whole = path.read_bytes()
    for at in (1 * 2 * 4096 + 3, len(whole) - 4096, len(whole) - 4096 + 50):
        path.write_bytes(whole[:at] + b"!" + whole[at + 1 :])
        with pytest.raises(AssertionError):
            reader()(example, 1, 0)


def formula(before: str, after: str = "\n") -> Any:
    """A formula of the page, as a function of the numbers in it."""
    text = PAGE.partition(before)[2].lstrip().partition(after)[0].strip()
    code = compile(text, "page", "eval")
    return lambda **numbers: eval(code, {"ceil": math.ceil}, numbers)


def test_formulas_of_the_2_bit_planes() -> None:
    rows, columns = 32, 192
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (rows, columns), np.uint8)
    scales = rng.integers(0, 256, (rows, columns // 32), np.uint8)
    plane, plane_of_scales = planes.pack_codes(codes).ravel(), planes.pack_scales(scales).ravel()
    index, scale = formula("of (n, k) has the\nindex\n"), formula("is this byte of its plane:\n\n")
    for n, k in np.ndindex(rows, columns):
        parts = {"nb": n // 16, "tile": n // 8 % 2, "g": n % 8, "kb": k // 64, "k32": k // 32 % 2}
        i = index(**parts, half=k // 16 % 2, t=k // 4 % 4, k4=k % 4, K=columns)
        assert plane[i // 4] >> 2 * (i % 4) & 3 == codes[n, k]
        assert plane_of_scales[scale(n=n, k=k, K=columns)] == scales[n, k // 32]


@pytest.mark.parametrize("columns", [256, 160])
def test_formulas_of_the_superblocks(columns: int) -> None:
    rows = 32
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (rows, columns // 2), np.uint8)
    scales = rng.integers(0, 256, (rows, columns // 32), np.uint8)
    flat = layout.pack_matrix(codes, scales)
    block, scale = formula("superblock\n", "(//"), formula("scale of (n, k): byte", "(U")
    code = formula("code of (n, k):  byte", "(E")
    for n, k in np.ndindex(rows, columns):
        at = 1088 * block(n=n, k=k, K=columns)
        b, j = k % 128 // 32, k % 32
        assert flat[at + scale(b=b, n=n)] == scales[n, k // 32]
        assert flat[at + code(b=b, j=j, n=n)] >> 4 * (k % 2) & 15 == codes[n, k // 2] >> 4 * (k % 2) & 15


def test_page_names_every_fact_of_the_sidecar() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert rows == {*EXAMPLE.document(), "records"}


def test_page_states_the_sizes_of_the_code() -> None:
    entry = sidecar.journal_entry((1, 0), 1)
    assert len(entry) == 20 and "append 20 bytes" in PAGE
    assert sidecar.trailer(EXAMPLE, "00" * 32)[84:] == bytes(4096 - 84)
