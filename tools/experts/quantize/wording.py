"""A run, its report and a pack, for people and as JSON documents."""

from pathlib import Path
from typing import Any

from tools.cli.output import Output
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.quantize.packs import Pack, parts
from tools.experts.quantize.report import Report
from tools.experts.quantize.run import Result, overview

# More layers than this are shown by their worst.
SHOWN_LAYERS = 12


def show_result(result: Result, path: Path, seconds: float, out: Output) -> None:
    """Prints what a run did."""
    show_report(result.report, out)
    rate = result.read / seconds / 1e9 if seconds else 0.0
    earlier = f", {result.resumed:,} experts by an earlier run" if result.resumed else ""
    out.line(f"{path}: {result.content}{earlier}")
    out.line(
        f"read {size(result.read)} in {seconds:.1f} s ({rate:.2f} GB/s), with {size(result.buffers)} of buffers",
        style="dim",
    )


def result_document(result: Result, path: Path, seconds: float) -> dict[str, Any]:
    """A run as JSON has it."""
    return {
        "schema": "moet.experts.quantize.v1",
        "pack": str(path),
        "content": result.content,
        "delta_content": result.delta_content,
        "resumed": result.resumed,
        "read_bytes": result.read,
        "buffer_bytes": result.buffers,
        "seconds": seconds,
        "report": result.report.document(),
    }


def show_report(report: Report, out: Output) -> None:
    """Prints a report: the gate, the layers, what was counted."""
    rows = []
    for one in report.gate():
        sign = ">" if one.above else "<"
        rows.append((one.name, f"{one.value:.4f}", f"{sign} {one.limit:g}", "holds" if one.holds else "DOES NOT HOLD"))
    out.table(("gate", ">value", ">limit", ""), rows)
    layers, title = report.layers, None
    if len(layers) > SHOWN_LAYERS:
        layers = tuple(sorted(layers, key=lambda one: (-one.rms, one.layer))[:SHOWN_LAYERS])
        title = f"the {SHOWN_LAYERS} of {len(report.layers)} layers with the largest error"
    numbers = [
        (
            one.layer,
            f"{one.rms:.4f}",
            f"{one.free_rms:.4f}",
            f"{one.bias:.5f}",
            f"{one.free_bias:.5f}",
            f"{one.canonical:.0%}",
        )
        for one in layers
    ]
    out.table((">layer", ">error", ">best four's", ">|bias|", ">best four's", ">best is -4 -1 1 4"), numbers, title)
    share = 100 / report.weights
    out.line(
        f"{report.tensors:,} tensors, {report.weights:,} weights: {report.zeros * share:.2f} % zeros (of"
        f" {report.alternated:,} tensors with the column's sign), {report.saturated * share:.3f} % above 6 units,"
        f" {report.zero_blocks:,} blocks of zeros, {report.clamped:,} exponents out of range"
    )


def show_checkpoint(found: Checkpoint, out: Output) -> None:
    """Prints what a checkpoint holds, and what it would take in other forms."""
    limit = "none" if found.swiglu_limit is None else f"{found.swiglu_limit:g}"
    rows = [
        ("model", found.model_type or "not stated"),
        (
            "experts",
            f"{found.scheme}, {len(found.layers)} layers x {found.experts}, H {found.hidden}, I {found.intermediate}",
        ),
        ("layers", f"{found.layers[0]} to {found.layers[-1]}"),
        ("not quantized", ", ".join(str(layer) for layer in found.plain_layers) or "none"),
        ("SwiGLU clamp", limit),
        ("identity", found.identity),
    ]
    out.table((f"{found.path}", ""), rows)
    sizes = [(name, f"{one['expert']:,}", size(one["all"])) for name, one in overview(found).items()]
    out.table(("form", ">bytes an expert", ">all"), sizes)


def checkpoint_document(found: Checkpoint) -> dict[str, Any]:
    """A checkpoint as JSON has it."""
    keys = (
        "model_type",
        "scheme",
        "layers",
        "plain_layers",
        "experts",
        "hidden",
        "intermediate",
        "swiglu_limit",
        "identity",
    )
    return {
        "schema": "moet.experts.checkpoint.v1",
        "path": str(found.path),
        **{key: getattr(found, key) for key in keys},
        "bytes": overview(found),
    }


def show_pack(pack: Pack, out: Output) -> None:
    """Prints what a pack holds."""
    header = pack.base.header
    rows = [
        ("holds", f"{header.kind} {header.tag}"),
        (
            "records",
            f"{len(pack.base.present()):,} of {header.total:,}: {len(header.layers)} layers x {header.experts}",
        ),
        ("geometry", f"H {pack.hidden}, I {pack.intermediate}, from {header.extra.get('scheme', 'not stated')}"),
        ("slot, stride", f"{header.slot_bytes:,}, {header.step:,} bytes"),
        ("zero mode", header.zero_mode),
        ("quantizer ABI", header.quantizer_abi),
        ("checkpoint", header.checkpoint),
        ("content", pack.base.content),
        ("on disk", size(pack.base.allocated)),
    ]
    if pack.delta is not None:
        rows.append(("delta", f"{pack.delta.header.kind} {pack.delta.content}, {size(pack.delta.allocated)}"))
    out.table((f"{pack.base.path}", ""), rows)


def pack_document(pack: Pack) -> dict[str, Any]:
    """A pack as JSON has it."""
    delta = None if pack.delta is None else {"kind": pack.delta.header.kind, "content": pack.delta.content}
    return {
        "schema": "moet.experts.pack.v1",
        "path": str(pack.base.path),
        "content": pack.base.content,
        "records": len(pack.base.present()),
        "allocated_bytes": pack.base.allocated,
        "header": pack.base.header.document(),
        "delta": delta,
    }


def plane_rows(pack: Pack) -> list[dict[str, Any]]:
    """The planes of a base slot, and of the delta's where there is one."""
    kinds = ["base"] if pack.kind is None else ["base", pack.kind]
    return [
        {"slot": kind, "matrix": one.matrix, "plane": one.kind, "rows": one.rows, "columns": one.columns,
         "offset": one.offset, "bytes": one.size}
        for kind in kinds
        for one in parts(pack.hidden, pack.intermediate, kind)
    ]  # fmt: skip


def size(count: float) -> str:
    """Bytes for people.

    >>> size(7077888), size(12)
    ('6.75 MiB', '12 bytes')
    """
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.2f} {unit}"
    return f"{count:.0f} bytes"
