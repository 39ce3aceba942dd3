"""What keeps a change from being begun, on a host that is made up."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from releases.known import Known
from serving.control import checks
from serving.control.candidate import Candidate
from serving.control.made_up import Quiet, generation
from serving.preflight import made_up
from serving.preflight.host import Host, Space
from tools.cli.errors import UserError


@dataclass
class OnHost:
    """What checks ask of a session."""

    host: Host
    known: Known
    out: Quiet


@pytest.fixture
def known(tmp_path: Path) -> Known:
    (tmp_path / "tree/images").mkdir(parents=True)
    (tmp_path / "tree/bazelw").touch()
    (tmp_path / "tree/CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    return Known.find(tmp_path / "tree")


@pytest.fixture
def candidate(tmp_path: Path) -> Candidate:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    given = [f"CACHE_DIR={cache}", f"PORT={made_up.free_port()}", "KV_OFFLOAD_GIB=8"]
    subject = made_up.subject(made_up.checkpoint(tmp_path / "model"), *given)
    return Candidate(generation(1, launch=subject.launch), subject.settings)


def engine(*running: dict[str, Any]) -> made_up.FakeDocker:
    """An engine that has the candidate's image by its id alone: its tag may have been moved."""
    return made_up.FakeDocker(images=(generation(1).image.image_id,), running=list(running))


def small(free: int) -> Callable[[Path], Space]:
    return lambda _: Space(total=64 << 30, free=free, inodes=10**6, read_only=False)


def check(candidate: Candidate, host: Host, known: Known, replaces: bool) -> list[str]:
    session = OnHost(host, known, Quiet())
    checks.check(session, candidate, replaces)  # type: ignore[arg-type]
    return session.out.notes


def test_host_that_is_fit_says_nothing(candidate: Candidate, known: Known, tmp_path: Path) -> None:
    notes = check(candidate, made_up.host(tmp_path, docker=engine), known, False)
    assert not [note for note in notes if "finding" in note]


def test_finding_refuses_and_is_said(candidate: Candidate, known: Known, tmp_path: Path) -> None:
    host = made_up.host(tmp_path, docker=lambda: made_up.FakeDocker(images=()))
    with pytest.raises(UserError, match="preflight: image: mend that first"):
        check(candidate, host, known, False)


@pytest.mark.parametrize("replaces", [False, True])
def test_what_the_running_server_holds_refuses_a_first_server_alone(
    candidate: Candidate, known: Known, tmp_path: Path, replaces: bool
) -> None:
    name = candidate.generation.launch.name
    held = made_up.host(
        tmp_path,
        docker=lambda: engine(made_up.container(name, "running")),
        run=made_up.smi(tmp_path / "busy", "".join(made_up.card(number, used=90_000) for number in range(4))),
        space=lambda path: small(1 << 30 if path == Path("/dev/shm") else 64 << 30)(path),
    )
    (held.proc / "meminfo").write_text("MemAvailable: 1000 kB\n")
    if not replaces:
        with pytest.raises(UserError, match="shared memory, host memory, container, GPU memory: mend that first"):
            check(candidate, held, known, replaces)
        return
    said = [note for note in check(candidate, held, known, replaces) if "(not judged" in note]
    assert [note.split(": ")[1] for note in said] == ["host memory", "GPU memory"]


def test_what_is_too_small_for_any_server_refuses_a_replacement_too(
    candidate: Candidate, known: Known, tmp_path: Path
) -> None:
    cache = replace(candidate.generation.launch.binds[1], source=str(tmp_path / "gone"))
    binds = tuple(cache if bind.target == cache.target else bind for bind in candidate.generation.launch.binds)
    gone = replace(candidate, generation=generation(1, launch=replace(candidate.generation.launch, binds=binds)))
    with pytest.raises(UserError, match="preflight: CACHE_DIR: mend"):
        check(gone, made_up.host(tmp_path, docker=engine), known, True)


def test_generation_that_todays_profile_cannot_say_is_not_looked_at(known: Known, tmp_path: Path) -> None:
    broken = made_up.host(tmp_path, docker=lambda: made_up.FakeDocker(images=()))
    assert check(Candidate(generation(1), None), broken, known, False) == []
