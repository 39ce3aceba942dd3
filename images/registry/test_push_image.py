"""Images into a registry: whole, with their digests, under a tag that never moves."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.engine import layout
from images.engine.layout import Image
from images.registry.client import Registry
from images.registry.errors import RegistryError
from images.registry.push_image import TagTakenError, push_image
from tests.engine.synthetic import make_layout, noise
from tests.registry_faults import proxy as fault
from tests.registry_faults.proxy import Faulty


@dataclass
class Counted:
    total: int = 0
    done: list[int] = field(default_factory=list)

    def start(self, what: str, total: int) -> None:
        self.total = total

    def advance(self, amount: int) -> None:
        self.done.append(amount)


def make(folder: Path, name: str, seed: int, layers: int = 5) -> Image:
    contents = [{f"file{number}": noise(seed * 100 + number, 400_000)} for number in range(layers)]
    return layout.read(make_layout(folder / name, f"{name}:r1", contents))


def test_whole_and_again(registry: Registry, proxy: Faulty, tmp_path: Path) -> None:
    image, seen = make(tmp_path, "whole", 1), Counted()
    done = push_image(registry, "moet/whole", "r1", image, seen)
    assert (done.manifest.digest, done.written, done.sent, done.present) == (image.manifest.digest, True, 6, 0)
    assert seen.total == sum(seen.done) == done.bytes_sent
    assert registry.manifest("moet/whole", "r1")[1] == image.manifest.path.read_bytes()
    proxy.clear()
    again = push_image(registry, "moet/whole", "r1", image, Counted())
    assert not again.written and not proxy.count("POST|PUT|PATCH|DELETE")
    other = push_image(registry, "moet/whole", "r2", image, Counted())
    assert (other.written, other.sent, other.present) == (True, 0, 6)


def test_a_tag_is_not_moved(registry: Registry, proxy: Faulty, tmp_path: Path) -> None:
    one, two = make(tmp_path, "one", 2), make(tmp_path, "two", 3)
    push_image(registry, "moet/taken", "r1", one, Counted())
    proxy.clear()
    with pytest.raises(TagTakenError) as caught:
        push_image(registry, "moet/taken", "r1", two, Counted())
    assert f"r1: stands for {one.manifest.digest} there, {two.manifest.digest} was to be pushed" in str(caught.value)
    assert not proxy.count("POST|PUT|PATCH|DELETE")


def test_a_tag_that_is_taken_meanwhile_is_not_moved(registry: Registry, proxy: Faulty, tmp_path: Path) -> None:
    one, two = make(tmp_path, "one", 4), make(tmp_path, "two", 5)
    upstream = Registry(proxy.upstream, plain_http=True)
    rival = fault.calls(lambda _: push_image(upstream, "moet/race", "r1", one, Counted()))
    proxy.add(rival, "POST", "/uploads/", times=1)
    with pytest.raises(TagTakenError):
        push_image(registry, "moet/race", "r1", two, Counted())
    assert registry.manifest("moet/race", "r1")[0].digest == one.manifest.digest


def test_an_interrupted_push_leaves_no_tag_and_is_taken_up(registry: Registry, proxy: Faulty, tmp_path: Path) -> None:
    image = make(tmp_path, "interrupted", 6)
    victim = image.layers[2].blob.digest.partition(":")[2]
    proxy.add(fault.cuts_request(100_000), "PUT", victim)
    with pytest.raises(RegistryError, match="the line was cut"):
        push_image(registry, "moet/interrupted", "r1", image, Counted())
    assert registry.resolve("moet/interrupted", "r1") is None
    proxy.clear()
    done = push_image(registry, "moet/interrupted", "r1", image, Counted())
    assert done.written and done.present >= 1 and done.sent + done.present == 6


def test_a_fault_stops_the_other_layers(registry: Registry, proxy: Faulty, tmp_path: Path) -> None:
    image = make(tmp_path, "stops", 7, layers=20)
    proxy.add(fault.answers(403, "DENIED"), "POST")
    with pytest.raises(RegistryError, match="no right to do this there"):
        push_image(registry, "moet/stops", "r1", image, Counted())
    assert proxy.count("POST") < 20


def test_an_altered_layer_is_refused(registry: Registry, tmp_path: Path) -> None:
    image = make(tmp_path, "altered", 8)
    path = image.layers[0].blob.path
    path.write_bytes(fault.flips(path.read_bytes()))
    with pytest.raises(RegistryError, match=r"the bytes that arrived do not have the digest.*build the layout again"):
        push_image(registry, "moet/altered", "r1", image, Counted())
    assert registry.resolve("moet/altered", "r1") is None
