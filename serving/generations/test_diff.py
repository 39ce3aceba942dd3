from dataclasses import replace

import pytest

from serving.control.made_up import Quiet, generation, launch
from serving.generations import diff, listing
from serving.generations.generation import KnobValue
from serving.generations.server import SCHEMA, Server
from serving.launch.launch import Bind
from tools.cli.errors import UserError
from tools.cli.output import Output


def rows(**changes: object) -> list[tuple[str, str, str | None, str | None]]:
    before = generation(1)
    after = replace(before, number=2, **changes)  # type: ignore[arg-type]
    return [(one.part, one.name, one.before, one.after) for one in diff.differences(before, after)]


def test_same_has_no_difference() -> None:
    assert rows(at="later", who="other (1)", what="rollback", of=1) == []


def test_image_with_its_steps() -> None:
    before = replace(generation(1).image, steps="1:tiers,2:next")
    after = replace(before, asked="toy:other", tag="toy:other", steps="1:tiers,3:more", base="vllm 0.34.0 abc")
    found = diff.differences(generation(1, image=before), generation(1, image=after))
    assert [(one.part, one.name, one.before, one.after) for one in found] == [
        ("image", "name", "toy:vllm0.33.0-r1", "toy:other"),
        ("image", "base", "vllm 0.33.0 4ba787ec9", "vllm 0.34.0 abc"),
        ("image", "step 2", "next", None),
        ("image", "step 3", None, "more"),
        ("kv", "base", "vllm 0.33.0 4ba787ec9", "vllm 0.34.0 abc"),
    ]


def test_knobs_and_launch() -> None:
    changed = launch(
        image=generation(1).launch.image,
        port=9,
        environment={"A": "1"},
        binds=(Bind("/cache", "/var/lib/moet", True),),
        arguments=("serve", "/model", "--kv-cache-dtype=bf16", "--flag"),
    )
    knobs = (KnobValue("PORT", "9", "--set"), KnobValue("OFF", "", "default"))
    assert rows(launch=changed, knobs=knobs) == [
        ("knob", "PORT", None, "9"),
        ("kv", "record", "fp8", "bf16"),
        ("caches", "folder", None, "/cache"),
        ("launch", "address", "127.0.0.1 port 8001", "127.0.0.1 port 9"),
        ("launch", "--kv-cache-dtype", "fp8", "bf16"),
        ("launch", "mount /var/lib/moet", None, "/cache"),
        ("launch", "A", None, "1"),
        ("launch", "--flag", None, "given"),
    ]


def test_default_is_previous_to_running(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(SCHEMA, "toy")
    with pytest.raises(UserError, match="nothing was served yet"):
        listing.show_diff(server, None, None, Output())
    server = server.staged(generation(1), "").served().settled()
    with pytest.raises(UserError, match="there is no previous generation"):
        listing.show_diff(server, None, None, Output())
    server = server.staged(generation(2), "").served().settled()
    listing.show_diff(server, None, None, Output())
    assert capsys.readouterr().out.startswith("toy: generation 1 -> 2\n")
    listing.show_diff(server, 2, 2, Output())
    assert capsys.readouterr().out == "toy: generation 2 -> 2: nothing differs\n"


def test_list_says_what_changed_or_why_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(SCHEMA, "toy").staged(generation(1), "").served().settled()
    server = server.staged(generation(2, what="switch", of=1), "").failed("crashed", None, "")
    server = server.staged(generation(3), "now")
    out = Quiet()
    listing.show(server, out)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] in (["1"], ["2"], ["3"])]
    assert [(line[0], line[1]) for line in lines] == [("3", "staged"), ("2", "failed"), ("1", "running")]
    assert lines[1][-1] == "crashed" and lines[1][3:5] == ["switch", "1"]
    assert out.notes == ["under way since now: generation 3, creating"]
