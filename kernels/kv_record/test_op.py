"""What can be seen of the operators without a GPU: that they load, are registered, and say what they cannot take."""

from collections.abc import Callable

import pytest
import torch

from kernels.kv_record.op import DIMS, kv_record, kv_record_gather, kv_record_key

T, PAGES, PAGE = 5, 3, 64

Values = dict[str, torch.Tensor | int | float | None]
NAMES = {
    "kv_record": ("rows", "positions", "cos_sin", "slots", "cache", "queries", "compress_ratio"),
    "kv_record_key": ("rows", "positions", "cos_sin", "slots", "weight", "cache", "compress_ratio", "eps"),
    "kv_record_gather": ("cache", "slots", "out"),
}


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def f32(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float32)


def u8(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


def i64(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


def apart(gap: int, width: int = 528) -> torch.Tensor:
    """Pages that are `gap` bytes further apart than they are long; less than none: they overlap."""
    return u8(PAGES, PAGE * width + abs(gap)).as_strided((PAGES, PAGE, width), (PAGE * width + gap, width, 1))


def arguments(width: int) -> Values:
    return {
        "rows": bf16(T, DIMS[width]),
        "positions": i64(T),
        "cos_sin": f32(7, 64),
        "slots": i64(T),
        "weight": bf16(128),
        "queries": None,
        "cache": u8(PAGES, PAGE, width),
        "out": bf16(T, DIMS[width]),
        "compress_ratio": 1,
        "eps": 1e-6,
    }


def call(operator: str, values: Values) -> None:
    getattr(torch.ops.moet, operator)(*[values[name] for name in NAMES[operator]])


OF_ALL: list[tuple[str, Callable[[], Values]]] = [
    ("cache: dtype is float32; expected uint8", lambda: {"cache": f32(PAGES, PAGE, 528)}),
    ("cache: shape is [3, 33792]; expected 3 dimensions", lambda: {"cache": u8(PAGES, PAGE * 528)}),
    ("cache: shape is [0, 64, 528]; expected dimension 0 to be 1 to", lambda: {"cache": u8(0, PAGE, 528)}),
    ("cache: shape is [3, 48, 528]; expected dimension 1 to be 32, 64 or 128", lambda: {"cache": u8(PAGES, 48, 528)}),
    ("cache: shape is [3, 64, 584]; expected dimension 2 to be 528 or 288", lambda: {"cache": u8(PAGES, PAGE, 584)}),
    (
        "cache: strides are [67584, 1056, 1]; expected pages of 33792 bytes without gaps",
        lambda: {"cache": u8(PAGES, PAGE, 1056)[:, :, :528]},
    ),
    ("cache: strides are [33800, 528, 1]; expected pages of 33792 bytes", lambda: {"cache": apart(8)}),
    ("cache: strides are [33776, 528, 1]; expected pages of 33792 bytes", lambda: {"cache": apart(-16)}),
    (
        "cache: strides are [67584, 1056, 2]; expected pages of 33792 bytes",
        lambda: {"cache": u8(2 * PAGES * PAGE * 528)[::2].view(PAGES, PAGE, 528)},
    ),
    (
        "cache: data begins at an address that is no multiple of 16",
        lambda: {"cache": u8(PAGES * PAGE * 528 + 8)[8:].view(PAGES, PAGE, 528)},
    ),
    ("slots: dtype is int32; expected int64", lambda: {"slots": i64(T).int()}),
    ("slots: shape is [5, 1]; expected 1 dimensions", lambda: {"slots": i64(T, 1)}),
    ("slots: strides are [2] for shape [5]; expected a contiguous", lambda: {"slots": i64(2 * T)[::2]}),
]  # fmt: skip
OF_WRITERS: list[tuple[str, Callable[[], Values]]] = [
    ("rows: dtype is float32; expected bfloat16", lambda: {"rows": f32(T, 512)}),
    ("rows: shape is [5, 1, 512]; expected 2 dimensions", lambda: {"rows": bf16(T, 1, 512)}),
    (
        "rows: shape is [5, 128]; expected dimension 1 to be 512, as the cache's record has",
        lambda: {"rows": bf16(T, 128)},
    ),
    ("rows: strides are [1, 5]; expected the last to be 1", lambda: {"rows": bf16(512, T).t()}),
    (
        "rows: strides are [516, 1]; expected dimension 0's to be at least 512 and a multiple of 8",
        lambda: {"rows": bf16(T, 516)[:, :512]},
    ),
    (
        "rows: data begins at an address that is no multiple of 16",
        lambda: {"rows": bf16(T * 512 + 4)[4:].view(T, 512)},
    ),
    ("slots: shape is [6]; expected dimension 0 to be 0 to 5", lambda: {"slots": i64(6)}),
    ("positions: dtype is int32; expected int64", lambda: {"positions": i64(T).int()}),
    ("positions: shape is [5, 1]; expected 1 dimensions", lambda: {"positions": i64(T, 1)}),
    ("positions: shape is [4]; expected dimension 0 to be 5 to", lambda: {"positions": i64(4)}),
    ("positions: strides are [2] for shape [5]", lambda: {"positions": i64(2 * T)[::2]}),
    ("cos_sin: dtype is bfloat16; expected float32", lambda: {"cos_sin": bf16(7, 64)}),
    ("cos_sin: shape is [448]; expected 2 dimensions", lambda: {"cos_sin": f32(448)}),
    ("cos_sin: shape is [0, 64]; expected dimension 0 to be 1", lambda: {"cos_sin": f32(0, 64)}),
    ("cos_sin: shape is [7, 32]; expected dimension 1 to be 64", lambda: {"cos_sin": f32(7, 32)}),
    ("cos_sin: strides are [128, 1] for shape [7, 64]; expected a cont", lambda: {"cos_sin": f32(7, 128)[:, :64]}),
    ("cos_sin: data begins at", lambda: {"cos_sin": f32(7 * 64 + 1)[1:].view(7, 64)}),
    ("compress_ratio: is 0; expected 1 or 2", lambda: {"compress_ratio": 0}),
    ("compress_ratio: is 3; expected 1 or 2", lambda: {"compress_ratio": 3}),
    ("rows: is not on a CUDA device; expected one", dict),
]
OF_KEYS: list[tuple[str, Callable[[], Values]]] = [
    ("cache: shape is [3, 64, 528]; expected dimension 2 to be 68", lambda: {"cache": u8(PAGES, PAGE, 528)}),
    ("cache: strides are [4360, 68, 1]; expected pages of 4352 bytes", lambda: {"cache": apart(8, 68)}),
    ("rows: shape is [5, 512]; expected dimension 1 to be 128", lambda: {"rows": bf16(T, 512)}),
    ("weight: dtype is float32; expected bfloat16", lambda: {"weight": f32(128)}),
    ("weight: shape is [1, 128]; expected 1 dimensions", lambda: {"weight": bf16(1, 128)}),
    ("weight: shape is [512]; expected dimension 0 to be 128", lambda: {"weight": bf16(512)}),
    ("weight: strides are [2] for shape [128]", lambda: {"weight": bf16(256)[::2]}),
    ("weight: data begins at", lambda: {"weight": bf16(129)[1:]}),
    ("eps: is -1; expected a number, 0 or more", lambda: {"eps": -1.0}),
    ("eps: is nan; expected a number, 0 or more", lambda: {"eps": float("nan")}),
    ("eps: is inf; expected a number, 0 or more", lambda: {"eps": float("inf")}),
    ("rows: is not on a CUDA device; expected one", dict),
]
OF_GATHER: list[tuple[str, Callable[[], Values]]] = [
    ("cache: shape is [3, 64, 100]; expected dimension 2 to be 528 or 288 or 68", lambda: {"cache": u8(3, 64, 100)}),
    ("out: dtype is float32; expected bfloat16", lambda: {"out": f32(T, 512)}),
    ("out: shape is [4, 512]; expected dimension 0 to be 5, as there are slots", lambda: {"out": bf16(4, 512)}),
    ("out: shape is [5, 128]; expected dimension 1 to be 512", lambda: {"out": bf16(T, 128)}),
    ("out: strides are [1024, 1] for shape [5, 512]", lambda: {"out": bf16(T, 1024)[:, :512]}),
    ("out: data begins at", lambda: {"out": bf16(T * 512 + 1)[1:].view(T, 512)}),
    ("cache: is not on a CUDA device; expected one", dict),
]
OF_QUERIES: list[tuple[str, Callable[[], Values]]] = [
    ("queries: dtype is float32; expected bfloat16", lambda: {"queries": f32(T, 16, 512)}),
    ("queries: shape is [5, 8192]; expected 3 dimensions", lambda: {"queries": bf16(T, 16 * 512)}),
    ("queries: shape is [6, 16, 512]; expected dimension 0 to be 0 to 5", lambda: {"queries": bf16(6, 16, 512)}),
    ("queries: shape is [5, 0, 512]; expected dimension 1 to be 1 to 128", lambda: {"queries": bf16(T, 0, 512)}),
    ("queries: shape is [5, 129, 512]; expected dimension 1 to be 1 to", lambda: {"queries": bf16(T, 129, 512)}),
    ("queries: shape is [5, 16, 128]; expected dimension 2 to be 512", lambda: {"queries": bf16(T, 16, 128)}),
    ("queries: strides are [8224, 514, 1]; expected", lambda: {"queries": bf16(T, 16, 514)[:, :, :512]}),
    ("queries: strides are [8192, 1, 16]; expected the last to be 1", lambda: {"queries": bf16(T, 512, 16).mT}),
    (
        "queries: strides are [512, 2560, 1] for shape [5, 16, 512]; expected heads of a token beside each other",
        lambda: {"queries": bf16(16, T, 512).transpose(0, 1)},
    ),
    (
        "queries: shape is [1048577, 128, 512]; expected no more than 134217728 heads in all",
        lambda: {
            "queries": bf16(520).as_strided((2**20 + 1, 128, 512), (0, 0, 1)),
            "positions": i64(2**20 + 1),
        },
    ),
    ("queries: data begins at", lambda: {"queries": bf16(T * 16 * 512 + 4)[4:].view(T, 16, 512)}),
]
MISUSES = [
    *[("kv_record", 528, message, change) for message, change in OF_ALL + OF_WRITERS + OF_QUERIES],
    *[("kv_record_key", 68, message, change) for message, change in OF_KEYS],
    *[("kv_record_gather", 528, message, change) for message, change in OF_ALL[:4] + OF_ALL[5:] + OF_GATHER],
]


@pytest.mark.parametrize(
    ("operator", "width", "message", "change"), MISUSES, ids=[f"{name}: {message}" for name, _, message, _ in MISUSES]
)
def test_misuse(operator: str, width: int, message: str, change: Callable[[], Values]) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(operator, arguments(width) | change())
    assert str(caught.value).startswith(f"{operator}: {message}")


@pytest.mark.parametrize("page", [32, 64, 128])
@pytest.mark.parametrize("width", [528, 288, 68])
def test_what_is_taken(width: int, page: int) -> None:
    """Pages and rows further apart, fewer slots than rows, more positions: all but where they are."""
    gap = u8(PAGES, page * width + 48).as_strided((PAGES, page, width), (page * width + 48, width, 1))
    dims = DIMS[width]
    values = arguments(width) | {"cache": gap, "slots": i64(3), "positions": i64(9), "out": bf16(3, dims)}
    values |= {"rows": bf16(T, dims + 8)[:, :dims], "compress_ratio": 2, "eps": 0.0}
    values["queries"] = bf16(9, 17, 520)[:, :16, :512]
    writer = "kv_record_key" if width == 68 else "kv_record"
    for operator, name in ((writer, "rows"), ("kv_record_gather", "cache")):
        with pytest.raises(RuntimeError, match=f"{operator}: {name}: is not on a CUDA device; expected one"):
            call(operator, values)


def test_schemas() -> None:
    assert [str(getattr(torch.ops.moet, name).default._schema) for name in NAMES] == [
        "moet::kv_record(Tensor rows, Tensor positions, Tensor cos_sin, Tensor slots, Tensor(a!) cache, "
        "Tensor(b!)? queries, int compress_ratio, bool dependent=False) -> ()",
        "moet::kv_record_key(Tensor rows, Tensor positions, Tensor cos_sin, Tensor slots, Tensor weight, "
        "Tensor(a!) cache, int compress_ratio, float eps, bool dependent=False) -> ()",
        "moet::kv_record_gather(Tensor cache, Tensor slots, Tensor(a!) out) -> ()",
    ]


def meta(values: Values) -> dict[str, torch.Tensor]:
    return {name: value.to("meta") for name, value in values.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("width", [528, 288, 68])
def test_meta(width: int) -> None:
    on_meta = meta(arguments(width))
    where = (on_meta["rows"], on_meta["positions"], on_meta["cos_sin"], on_meta["slots"])
    if width == 68:
        kv_record_key(*where, on_meta["weight"], on_meta["cache"], eps=1e-6)
    else:
        kv_record(*where, on_meta["cache"], compress_ratio=2, dependent=True)
        kv_record(*where, on_meta["cache"], queries=bf16(T, 16, 512).to("meta"))
    out = kv_record_gather(on_meta["cache"], on_meta["slots"])
    assert (out.shape, out.dtype, out.device.type) == ((T, DIMS[width]), torch.bfloat16, "meta")


def test_meta_refuses_other_shapes() -> None:
    on_meta = meta(arguments(528))
    where = (on_meta["rows"], on_meta["positions"], on_meta["cos_sin"])
    with pytest.raises(RuntimeError, match="kv_record: cache: expected records of 528, 288 or 68 bytes"):
        kv_record(*where, on_meta["slots"], u8(3, 64, 584).to("meta"))
    with pytest.raises(RuntimeError, match="kv_record: rows: expected 128 numbers"):
        kv_record(*where, on_meta["slots"], u8(3, 64, 68).to("meta"))
    with pytest.raises(RuntimeError, match="kv_record: slots: expected no more than there are rows"):
        kv_record(*where, i64(T + 1).to("meta"), on_meta["cache"])
    with pytest.raises(RuntimeError, match="kv_record: positions: expected one for each slot"):
        kv_record(where[0], i64(T - 1).to("meta"), where[2], on_meta["slots"], on_meta["cache"])
    for queries in (bf16(T + 1, 16, 512), bf16(T, 16, 128)):
        with pytest.raises(RuntimeError, match="kv_record: queries: expected a position for each, and 512 numbers"):
            kv_record(*where, on_meta["slots"], on_meta["cache"], queries=queries.to("meta"))
    with pytest.raises(RuntimeError, match="kv_record_gather: out: expected a row a slot"):
        kv_record_gather(on_meta["cache"], on_meta["slots"], out=bf16(T, 128).to("meta"))
