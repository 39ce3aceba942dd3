"""Shows what a pack or a checkpoint holds."""

from pathlib import Path
from typing import Any

import numpy as np

from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.quantize import wording
from tools.experts.quantize.packs import Pack


def inspect(path: Path, delta: Path | None, record: tuple[int, int] | None, out: Output) -> dict[str, Any]:
    """Prints what is in the folder, and returns it as JSON has it.

    Raises UserError for what is neither, and for a record that is not there.
    """
    if (path / "config.json").exists() and not (path / "experts.json").exists():
        if record is not None or delta is not None:
            raise UserError(f"{path}: is a checkpoint; --record and --delta are for packs")
        with Checkpoint.open(path) as found:
            wording.show_checkpoint(found, out)
            return wording.checkpoint_document(found)
    with Pack(path, delta) as pack:
        document = wording.pack_document(pack) | {"planes": wording.plane_rows(pack)}
        if record is None:
            wording.show_pack(pack, out)
            rows = [tuple(one.values()) for one in document["planes"]]
            out.table(("slot", "matrix", "plane", ">rows", ">columns", ">offset", ">bytes"), rows)
            try:
                _show_report(document["header"]["extra"].get("report"), out)
            except (KeyError, TypeError, ValueError):
                raise UserError(f"{path}: its sidecar states no report that can be read") from None
            return document
        return document | {"record": _record(pack, *record, out)}


def _show_report(report: dict[str, Any] | None, out: Output) -> None:
    if report is None:
        return
    rows = []
    for one in report["gate"]:
        limit = f"{'>' if one['above'] else '<'} {one['limit']:g}"
        rows.append((one["name"], f"{one['value']:.4f}", limit, "holds" if one["holds"] else "DOES NOT HOLD"))
    out.table(("gate", ">value", ">limit", ""), rows)


def _record(pack: Pack, layer: int, expert: int, out: Output) -> dict[str, Any]:
    offset = pack.base.header.offset(layer, expert)
    checksum = f"{pack.base.checksum(layer, expert):016x}"
    out.line(f"layer {layer}, expert {expert}: byte {offset:,} of {pack.base.records.name}, CRC-64/NVME {checksum}")
    found: dict[str, Any] = {"layer": layer, "expert": expert, "offset": offset, "checksum": checksum, "matrices": {}}
    rows = []
    for matrix, (codes, scales, nibbles) in pack.matrices(layer, expert).items():
        counts = np.bincount(codes.reshape(-1), minlength=4)
        exponents = scales.astype(int) - 127
        one: dict[str, Any] = {
            "codes": [int(count) for count in counts],
            "exponents": {
                "least": int(exponents.min()),
                "median": float(np.median(exponents)),
                "most": int(exponents.max()),
            },
        }
        if nibbles is not None:
            one["nibbles"] = [int(count) for count in np.bincount(nibbles.reshape(-1), minlength=16)]
        found["matrices"][matrix] = one
        shares = [f"{count / codes.size:.1%}" for count in counts]
        rows.append((matrix, f"{codes.shape[0]} x {codes.shape[1]}", *shares, *one["exponents"].values()))
    columns = ("matrix", ">shape", ">-4", ">-1", ">1", ">4", ">least exponent", ">median", ">most")
    out.table(columns, rows)
    return found
