"""A small patch folder for tests."""

from pathlib import Path

from patches.engine.make import make_diff

HEADER = """Description: {name}
Reason: upstreaming
Step: {step}
Switch: {switch}
Forwarded: no
Drop-When: upstream does it
Last-Update: 2026-11-29

"""


def make_patch(name: str, *diffs: tuple[str, bytes | None, bytes], step: str = "a-step", switch: str = "none") -> bytes:
    """A patch with a valid header and a diff for each (path, before, after)."""
    header = HEADER.format(name=name, step=step, switch=switch).encode()
    return header + b"".join(make_diff(*diff) for diff in diffs)


def make_series(folder: Path, patches: dict[str, bytes], name: str = "demo-1.0") -> Path:
    """Write the patches and a series file that lists them in order. Returns the patch folder."""
    place = folder / name
    place.mkdir()
    for patch, data in patches.items():
        (place / patch).write_bytes(data)
    (place / "series").write_text("# order\n" + "".join(f"{patch}\n" for patch in patches))
    return place
