"""What the measurements say: medians, ratios, and which aims they meet."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.assembly import INSTALL, OURS, Samples
from bench.builds import Builds, Loaded
from bench.meter import Cost
from bench.peers import Peer, Sample

# The aims, as the project set them for itself.
_DOCKER_FACTOR = 2.0
_NOOP_SECONDS = 1.0
_EDIT_SECONDS = 10.0
_LOAD_SHARE = 20.0
_WRITTEN_FACTOR = 2.1


@dataclass(frozen=True)
class Row:
    """One line of the table: medians of a way's runs, in seconds and bytes, and how many runs there were.

    `image_bytes` is None where no image was made; `times` is the wall time over Moet's way, `times_installed` the
    same with the installation of the wheels before it.
    """

    name: str
    runs: int
    wall_s: float
    cpu_s: float
    written_bytes: int
    image_bytes: int | None = None
    times: float | None = None
    times_installed: float | None = None


@dataclass(frozen=True)
class Aim:
    """An aim of the project, what was measured, and whether it is met."""

    what: str
    wanted: str
    measured: str
    met: bool


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each quantity by itself."""

    def middle(of: Callable[[Cost], float]) -> float:
        return statistics.median(of(cost) for cost in costs)

    return Cost(middle(lambda c: c.wall_s), middle(lambda c: c.cpu_s), round(middle(lambda c: c.written_bytes)))


def assembly_rows(samples: Samples, ways: Sequence[Peer]) -> list[Row]:
    """Moet's way, the peers' installation, and each peer."""
    ours, install = median([one.cost for one in samples.ours]), median(samples.install)
    rows = [_row(OURS, samples.ours), Row(INSTALL, len(samples.install), *_numbers(install))]
    for way in ways:
        runs = samples.peers[way.name]
        wall = median([one.cost for one in runs]).wall_s
        rows.append(_row(way.title, runs, wall / ours.wall_s, (wall + install.wall_s) / ours.wall_s))
    return rows


def build_rows(builds: Builds) -> list[Row]:
    """A row for each kind of build that was measured."""
    rows = []
    for name, costs in (("bazel build, nothing to do", builds.noop), ("one line of a patch to layout", builds.edit)):
        if costs:
            rows.append(Row(name, len(costs), *_numbers(median(costs)), builds.image_bytes))
    for name, loads in (("whole image to engine", builds.whole), ("one line of a patch to engine", builds.edit_loaded)):
        if loads:
            rows.append(Row(name, len(loads), *_numbers(median(_costs(loads))), builds.image_bytes))
    return rows


def assembly_aims(samples: Samples, ways: Sequence[Peer], wheels_bytes: int) -> list[Aim]:
    """Speed against umoci and Docker, and bytes written; `wheels_bytes` is what was fetched."""
    rows = {row.name: row for row in assembly_rows(samples, ways)}
    aims = []
    for way in ways:
        factor = 1.0 if way.name == "umoci" else _DOCKER_FACTOR if way.name.startswith("docker") else None
        row = rows[way.title]
        if factor is None or row.times is None or row.times_installed is None:
            continue
        wanted = f"at least {factor:g} x Moet's wall time"
        aims.append(_more(f"{way.title}, from wheels", wanted, row.times_installed, factor))
        aims.append(_more(f"{way.title}, given an installed tree", wanted, row.times, factor))
    ours = rows[OURS]
    written = (ours.written_bytes + wheels_bytes) / (ours.image_bytes or 1)
    wanted = f"at most about {int(_WRITTEN_FACTOR)} x the image's bytes"
    what = "written to disk, fetched wheels and image"
    return [*aims, Aim(what, wanted, f"{written:.2f} x", written <= _WRITTEN_FACTOR)]


def build_aims(builds: Builds) -> list[Aim]:
    """The aims of the builds that were measured."""
    aims = []
    if builds.noop:
        aims.append(_within("no-op build", median(builds.noop).wall_s, _NOOP_SECONDS))
    if builds.edit:
        aims.append(_within("one line of a patch to a new layout", median(builds.edit).wall_s, _EDIT_SECONDS))
    if builds.edit_loaded:
        ratio = median(_costs(builds.whole)).wall_s / median(_costs(builds.edit_loaded)).wall_s
        sent = max(load.bytes_sent for load in builds.edit_loaded) / 1e6
        wanted, measured = f"at most 1/{_LOAD_SHARE:g} of a whole load", f"1/{ratio:.1f}, {sent:.1f} MB sent"
        aims.append(Aim("one line of a patch to the engine", wanted, measured, ratio >= _LOAD_SHARE))
    return aims


def document(samples: Samples, builds: Builds) -> dict[str, Any]:
    """Every run, for machines."""
    return {"assembly": asdict(samples), "builds": asdict(builds)}


def _row(name: str, runs: Sequence[Sample], times: float | None = None, installed: float | None = None) -> Row:
    cost = median([one.cost for one in runs])
    image = round(statistics.median(one.image_bytes for one in runs))
    return Row(name, len(runs), *_numbers(cost), image, times, installed)


def _numbers(cost: Cost) -> tuple[float, float, int]:
    return cost.wall_s, cost.cpu_s, cost.written_bytes


def _costs(loads: Iterable[Loaded]) -> list[Cost]:
    return [load.cost for load in loads]


def _more(what: str, wanted: str, ratio: float, factor: float) -> Aim:
    return Aim(what, wanted, f"{ratio:.2f} x", ratio >= factor)


def _within(what: str, seconds: float, limit: float) -> Aim:
    return Aim(what, f"under {limit:g} s", f"{seconds:.2f} s", seconds < limit)
