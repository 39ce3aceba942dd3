import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine.errors import EngineError
from serving.preflight import engine, exposure, memory, places, port, programs
from serving.preflight.host import Host, Space
from serving.preflight.made_up import IMAGE, FakeDocker, checkpoint, container, free_port, host, only, subject
from serving.preflight.preflight import preflight
from serving.preflight.result import Result

GIB = 1 << 30


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model")


def having(total: int, free: int, inodes: int | None = 10**6, read_only: bool = False) -> Host:
    return Host(space=lambda path: Space(total * GIB, free * GIB, inodes, read_only))


def test_host_that_lacks_nothing_has_no_finding(model: Path, tmp_path: Path) -> None:
    docker = FakeDocker()
    server = subject(model, f"CACHE_DIR={mine(tmp_path)}", f"PORT={free_port()}")
    results = list(preflight(server, host(tmp_path, docker=lambda: docker)))
    assert [one.check for one in results if one.state != "ok"] == ["host memory", "all-reduce"]
    assert docker.closed


def test_shared_memory_holds_the_server_and_the_blocks(model: Path) -> None:
    assert only(memory.check(subject(model), having(32, 32)), "shared memory").state == "ok"
    small = only(memory.check(subject(model, "KV_OFFLOAD_GIB=63.5"), having(64, 64)), "shared memory")
    assert small.state == "finding" and "64.0 GiB of it free; 95.5 GiB are needed" in small.what
    assert small.mend == "mount -o remount,size=96G /dev/shm"
    held = only(memory.check(subject(model), having(64, 31)), "shared memory")
    assert held.state == "finding" and "31.0 GiB of it free" in held.what and "fuser" in held.mend


def test_host_memory_for_offload(model: Path, tmp_path: Path) -> None:
    made = host(tmp_path)
    assert only(memory.check(subject(model), made), "host memory").state == "skipped"
    assert only(memory.check(subject(model, "KV_OFFLOAD_GIB=256"), made), "host memory").state == "ok"
    result = only(memory.check(subject(model, "KV_OFFLOAD_GIB=257"), made), "host memory")
    assert result.what == "256.0 GiB are available; KV_OFFLOAD_GIB takes 257.0 GiB"
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1 kB\n")
    assert only(memory.check(subject(model, "KV_OFFLOAD_GIB=1"), made), "host memory").state == "skipped"


def mine(tmp_path: Path) -> Path:
    place = tmp_path / "cache"
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    return place


def test_places_are_there_writable_and_have_room(model: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache"
    made = having(100, 100)

    def looked(host: Host, *given: str) -> Result:
        return only(places.check(subject(model, f"CACHE_DIR={place}", *given), host, None), "CACHE_DIR")

    assert looked(made).what == f"{place} does not exist"
    assert looked(made).mend == f"install -d -o 1000 -g 1000 {place}"
    place.touch()
    assert looked(made).what == f"{place} is no folder"
    place.unlink()
    mine(tmp_path)
    assert looked(made).state == "ok"
    assert looked(having(100, 9)).what == f"{place} has 9.0 GiB free; at least 10.0 GiB are needed"
    assert looked(having(100, 50, inodes=99_999)).what.startswith(f"{place} has 99,999 free inodes")
    assert looked(having(100, 50, inodes=None)).what == f"{place} has 50.0 GiB free"
    assert "mounted read-only" in looked(having(100, 50, read_only=True)).what
    place.chmod(0o555)
    assert looked(made).what == f"{place} cannot be written to by user 1000"


def test_disk_tier_holds_more_than_the_memory_above_it(model: Path, tmp_path: Path) -> None:
    given = ("KV_OFFLOAD_GIB=64", f"KV_OFFLOAD_FS_DIR={mine(tmp_path)}")
    results = places.check(subject(model, *given), having(100, 63), None)
    assert only(results, "KV_OFFLOAD_FS_DIR").what.endswith("has 63.0 GiB free; at least 64.0 GiB are needed")
    assert only(places.check(subject(model, *given), having(100, 64), None), "KV_OFFLOAD_FS_DIR").state == "ok"


def test_volume_is_looked_at_where_the_engine_keeps_it(model: Path, tmp_path: Path) -> None:
    full, docker = having(100, 1), FakeDocker(info={"DockerRootDir": str(tmp_path)})
    assert only(places.check(subject(model), full, None), "CACHE_DIR").state == "skipped"
    result = only(places.check(subject(model), full, docker), "CACHE_DIR")
    assert result.what.startswith(f"the volume dsv41-cache, below {tmp_path}, has 1.0 GiB free")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


def test_port(model: Path, taken: int) -> None:
    assert only(port.check(subject(model, f"PORT={free_port()}"), None), "port").state == "ok"
    wanted = subject(model, f"PORT={taken}")
    result = only(port.check(wanted, None), "port")
    assert (result.state, result.what) == ("finding", f"127.0.0.1:{taken} is taken")
    assert result.mend == f"ss -ltnp 'sport = :{taken}' says by whom; or --set PORT=NUMBER"
    other = FakeDocker(running=[container("web", "running", taken)])
    assert f"is taken by the container web, from {IMAGE}" in only(port.check(wanted, other), "port").what
    own = FakeDocker(running=[container("dsv41", "running", taken)])
    assert only(port.check(wanted, own), "port").what == f"127.0.0.1:{taken} is served by the container dsv41 itself"
    result = only(engine.check(wanted, own), "container")
    assert result.what == f"dsv41 is running already, from {IMAGE}, and serves port {taken}"


def test_address_of_another_host(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = only(port.check(subject(model, "BIND=127.0.0.1", f"PORT={free_port()}"), None), "port")
    assert result.state == "ok"
    # A documentation address (RFC 5737), which no host has.
    monkeypatch.setattr("serving.preflight.port._bind", lambda address, number: bind("192.0.2.1"))
    assert only(port.check(subject(model), None), "port").what == "127.0.0.1 is no address of this host"


def bind(address: str) -> None:
    with socket.socket() as probe:
        probe.bind((address, 0))


def test_key_that_guards_less_than_all(model: Path) -> None:
    assert exposure.check(subject(model, "BIND=::1")).state == "ok"
    result = exposure.check(subject(model, "BIND=192.0.2.1"))
    assert result.state == "hint" and "/invocations" in result.why and "--set BIND=127.0.0.1" in result.mend


def test_engine_without_gpus_image_or_name(model: Path) -> None:
    docker = FakeDocker(info={"Runtimes": {"runc": {}}}, images=(), running=[container("dsv41", "exited")])
    results = engine.check(subject(model), docker)
    assert only(results, "engine").what == "docker 28.2.2"
    assert "nvidia-ctk runtime configure" in only(results, "engine's GPUs").mend
    assert only(results, "image").mend == f"moet image load {IMAGE}"
    assert only(results, "container").mend == "docker rm dsv41"
    cdi = FakeDocker(info={"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]})
    assert [one.state for one in engine.check(subject(model), cdi)] == ["ok"] * 4


@pytest.mark.parametrize(
    ("image", "mend"),
    [
        ("dsv41:mine", "bazel run //images/dsv41:load, or --set IMAGE=IMAGE, one that the engine has"),
        ("host:5000/dsv41:mine", "docker pull host:5000/dsv41:mine"),
        (f"host:5000/dsv41@sha256:{'0' * 64}", f"docker pull host:5000/dsv41@sha256:{'0' * 64}"),
    ],
)
def test_image_that_is_no_release_says_how_to_get_it(image: str, mend: str, model: Path) -> None:
    result = only(engine.check(subject(model, f"IMAGE={image}", released=False), FakeDocker()), "image")
    assert (result.state, result.mend) == ("finding", mend)


def test_engine_that_does_not_answer(model: Path, tmp_path: Path) -> None:
    def closed() -> FakeDocker:
        raise EngineError("no engine answers at unix:///run/x.sock (No such file or directory)")

    results = list(preflight(subject(model), host(tmp_path, docker=closed)))
    assert only(results, "engine").mend == "systemctl start docker"
    assert [only(results, name).state for name in ("engine's GPUs", "image", "container")] == ["skipped"] * 3


def test_engine_that_stops_answering_is_one_finding(model: Path, tmp_path: Path) -> None:
    class Dying(FakeDocker):
        def find(self, name: str) -> None:
            raise EngineError("docker 28.2.2 did not look for it: gone")

    dying = Dying()
    results = list(preflight(subject(model), host(tmp_path, docker=lambda: dying)))
    assert only(results, "engine").state == "finding" and dying.closed
    assert only(results, "GPUs").state == "ok"


def test_program_that_hangs_is_left() -> None:
    assert programs.run(["sleep", "60"], seconds=0.2) == programs.Done(124, "", "no answer within 0.2 s")
    assert programs.run(["sh", "-c", "cat; echo a; echo b >&2; exit 3"]) == programs.Done(3, "a\n", "b\n")
