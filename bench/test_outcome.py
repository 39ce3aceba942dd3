from pathlib import Path

from bench import outcome
from bench.assembly import Samples
from bench.builds import Builds, Loaded
from bench.meter import Cost
from bench.peers import Peer, Sample


def nothing(_context: Path, _work: Path) -> Sample:
    raise AssertionError


UMOCI = Peer("umoci", "umoci insert", {}, nothing)
DOCKER = Peer("docker", "docker build", {}, nothing)
BUILDAH = Peer("buildah", "buildah bud", {}, nothing)


def sample(wall: float, image: int = 100) -> Sample:
    return Sample(Cost(wall, 2 * wall, 110), image)


def samples() -> Samples:
    return Samples(
        ours=[sample(9), sample(10), sample(50)],
        install=[Cost(4, 4, 300), Cost(6, 6, 300), Cost(5, 5, 300)],
        peers={"umoci": [sample(8)] * 3, "docker": [sample(19)] * 3, "buildah": [sample(1)] * 3},
    )


def test_rows_have_medians_and_ratios_to_ours_with_and_without_installation() -> None:
    ours, install, umoci, docker, buildah = outcome.assembly_rows(samples(), [UMOCI, DOCKER, BUILDAH])
    assert (ours.wall_s, ours.cpu_s, ours.written_bytes, ours.image_bytes, ours.runs) == (10, 20, 110, 100, 3)
    assert (install.wall_s, install.image_bytes, install.times) == (5, None, None)
    assert (umoci.times, umoci.times_installed) == (0.8, 1.3)
    assert (docker.times, docker.times_installed) == (1.9, 2.4)
    assert (buildah.times, buildah.times_installed) == (0.1, 0.6)


def test_a_peer_is_judged_with_and_without_installation() -> None:
    aims = {aim.what: aim.met for aim in outcome.assembly_aims(samples(), [UMOCI, DOCKER, BUILDAH], 90)}
    assert aims == {
        "umoci insert, from wheels": True,
        "umoci insert, given an installed tree": False,
        "docker build, from wheels": True,
        "docker build, given an installed tree": False,
        "written to disk, fetched wheels and image": True,
    }


def test_fetched_wheels_count_as_written() -> None:
    written = outcome.assembly_aims(samples(), [], 150)[-1]
    assert (written.measured, written.met) == ("2.60 x", False)


def test_builds_are_judged_by_their_medians() -> None:
    def load(wall: float) -> Loaded:
        return Loaded(Cost(wall, 1, 1), 400_000, 2)

    builds = Builds(
        image_bytes=7,
        noop=[Cost(9, 1, 0), Cost(0.4, 1, 0), Cost(0.5, 1, 0)],
        edit=[Cost(3, 1, 1)],
        whole=[load(100)],
        edit_loaded=[load(6), load(4), load(5.5)],
    )
    assert {aim.what: (aim.measured, aim.met) for aim in outcome.build_aims(builds)} == {
        "no-op build": ("0.50 s", True),
        "one line of a patch to a new layout": ("3.00 s", True),
        "one line of a patch to the engine": ("1/18.2, 0.4 MB sent", False),
    }
    assert [(row.wall_s, row.runs, row.image_bytes) for row in outcome.build_rows(builds)] == [
        (0.5, 3, 7),
        (3, 1, 7),
        (100, 1, 7),
        (5.5, 3, 7),
    ]


def test_what_was_not_measured_has_no_row_and_no_aim() -> None:
    assert outcome.build_rows(Builds()) == []
    assert outcome.build_aims(Builds()) == []
