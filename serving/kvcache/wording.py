"""What `moet kvcache` prints for people."""

from collections.abc import Sequence

from images.inspect.text import plain
from serving.kvcache.faults import Faults
from serving.kvcache.survey import AGES, Survey
from serving.kvcache.tier import AccessTimes, Tier
from serving.kvcache.ttl import Count, Sweep
from tools.cli.output import Output

_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def size(count: int) -> str:
    """A number of bytes in decimal units, as disks are sold."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count} B"


def summary(tier: Tier, done: Sweep) -> str:
    """The one line that a run of `ttl` ends with."""
    limits = done.limits
    deleted = "would be deleted" if done.dry_run else "deleted"
    parts = (
        f"{_count(done.unused)} unused for {limits.hours:g} h",
        f"{_count(done.over_cap)} over {size(limits.max_bytes)}",
        _number(done.temporary.files, "temporary file"),
    )
    return plain(f"{tier.path}: {deleted}: {', '.join(parts)}; {_count(done.kept)} stay")


def note_access_times(access_times: AccessTimes, hours: float) -> str | None:
    """What the person must know of how this mount counts uses, where it makes a difference for `hours`."""
    if access_times == "never":
        return "the file system is mounted noatime: a block's age counts from its writing, however often it is read"
    if access_times == "once a day" and hours <= 24:
        return "the file system is mounted relatime: a block that is in use may look unused for up to 24 h"
    return None


def show_faults(faults: Faults, out: Output) -> None:
    """Notes what could not be read or deleted."""
    for line in faults.told:
        out.note(plain(line))
    if faults.count > len(faults.told):
        out.note(f"and {faults.count - len(faults.told):,} more that could not be read or deleted")


def show_surveys(found: Sequence[Survey], out: Output) -> None:
    """Prints the table, a line for the whole, and one for each folder whose blocks differ in size."""
    ends = [f">< {end} h" if end < 24 else f">< {end // 24} d" for end in AGES]
    columns = ["folder", "format", ">tokens", ">a block", ">blocks", ">size", *ends, ">older", ">temporary"]
    out.table(columns, [_row(each) for each in found])
    total = Count(sum(each.blocks for each in found), sum(each.size for each in found))
    out.line(f"{_count(total)} in {_number(len(found), 'folder')}")
    for each in found:
        if len(each.sizes) > 1:
            out.line(plain(f"{each.folder.path}: {mixed(each)}"))


def mixed(survey: Survey) -> str:
    """What is wrong with a folder that has blocks of several sizes."""
    sizes = ", ".join(f"{count:,} of {bytes_:,} B" for bytes_, count in survey.sizes.most_common(3))
    return (
        f"blocks of {len(survey.sizes)} sizes ({sizes}): expected one; blocks of another format load as garbage. "
        "Stop the engine, delete this folder's blocks, and give each format a directory of its own"
    )


def _row(survey: Survey) -> list[object]:
    config = survey.folder.config
    kind = f"{config.dtype}, {config.canonical_format}" if config.canonical_format else config.dtype
    common = survey.sizes.most_common(1)
    cells = [plain(survey.folder.path), plain(kind), ", ".join(map(str, config.tokens))]
    ages = [size(each) if each else "-" for each in survey.by_age]
    one = f"{common[0][0]:,} B" if common else "-"
    return [*cells, one, f"{survey.blocks:,}", size(survey.size), *ages, survey.temporary or "-"]


def _count(count: Count) -> str:
    return f"{_number(count.files, 'block')} ({size(count.size)})"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
