"""What `moet experts stat` prints."""

from typing import Any

from serving.experts.storage.header import Header, ranges
from serving.experts.storage.survey import Survey
from tools.cli.output import Output

SCHEMA = "moet.experts-stat.v1"


def show(found: Survey, out: Output) -> None:
    """Prints a survey: the container, its draft, the back ends of this machine."""
    if found.header is not None:
        out.table(["container", ""], _container(found, found.header))
    if found.draft is not None:
        draft = found.draft
        state = f"{draft.holder} is writing it" if draft.holder else "run the same command again to go on"
        out.line(
            f"draft of kind {draft.header.kind}: {draft.records:,} of {draft.header.total:,} records are safe; {state}"
        )
    if found.draft_problem:
        out.line(f"draft: {found.draft_problem}", "yellow")
    out.table(["here", ""], [[name, why or "yes"] for name, why in found.here.items()])
    for layer, expert in (found.damaged or [])[:20]:
        out.line(f"damaged: layer {layer}, expert {expert}", "red")
    if found.damaged:
        out.line(f"{len(found.damaged):,} damaged records: restore the file, or write the container again", "red")
    for layer, expert in (found.unreadable or [])[:20]:
        out.line(f"unreadable: layer {layer}, expert {expert}", "red")
    if found.unreadable:
        count = f"{len(found.unreadable):,} records that the device does not give (input/output error)"
        out.line(f"{count}: look at the kernel's log, and write the container again on another disk", "red")


def document(found: Survey) -> dict[str, Any]:
    """The survey as JSON has it; sizes in bytes."""
    header, draft = found.header, found.draft
    return {
        "schema": SCHEMA,
        "container": None
        if header is None
        else {
            **{name: value for name, value in header.document().items() if name != "schema"},
            "content": found.content,
            "records": found.records,
            "records_total": header.total,
            "allocated": found.allocated,
            "apparent": header.apparent,
            "verified_bytes": found.verified,
            "damaged": found.damaged,
            "unreadable": found.unreadable,
        },
        "draft_problem": found.draft_problem or None,
        "draft": None
        if draft is None
        else {
            "kind": draft.header.kind,
            "records": draft.records,
            "records_total": draft.header.total,
            "holder": draft.holder or None,
        },
        "here": {name: why or True for name, why in found.here.items()},
    }


def size(count: int) -> str:
    """Bytes for people: "268.95 GiB (288,777,830,400 B)"."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:,.2f} {unit} ({count:,} B)"
    return f"{count} B"


def _container(found: Survey, header: Header) -> list[list[str]]:
    if found.damaged is None:
        sums = f"{header.document()['checksum']}, one a record; not compared (--verify)"
    else:
        right = found.records - len(found.damaged) - len(found.unreadable or [])
        sums = f"{header.document()['checksum']}: {right:,} of {found.records:,} right, {size(found.verified)} read"
    return [
        ["kind", header.kind],
        ["tag", header.tag],
        ["content", found.content],
        ["checkpoint", header.checkpoint],
        *([["quantizer ABI", str(header.quantizer_abi)]] if header.quantizer_abi is not None else []),
        *([["zero mode", header.zero_mode]] if header.zero_mode is not None else []),
        ["layers", f"{ranges(header.layers)} ({len(header.layers)})"],
        ["experts of a layer", f"{header.experts:,}"],
        ["record", size(header.slot_bytes)],
        ["stride", size(header.step)],
        ["records", f"{found.records:,} of {header.total:,}"],
        ["on disk", size(found.allocated)],
        ["apparent size", size(header.apparent)],
        ["checksums", sums],
        *[[name, _short(value)] for name, value in sorted(header.extra.items())],
    ]


def _short(value: object) -> str:
    """What a table shows of a value; documents in it are for --json."""
    return f"{len(value)} entries (--json)" if isinstance(value, dict | list) else str(value)
