"""Generations on a real engine: what is served, what is kept of it, and the way back."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from images.engine import push
from images.engine.reference import parse
from images.registry.client import Registry
from tests.engine.engines import loopback_registry
from tests.engine.loading import Quiet
from tests.release.toy import LINE, R0, R1
from tests.serving.operator import Operator, Outcome

SIXTEEN = ("--set", "MAX_NUM_SEQS=16")


def document(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outcome.output)
    return found


def places(operator: Operator) -> list[tuple[str, str]]:
    return [(one.what, operator.server.place(one)) for one in operator.server.generations]


def test_life_of_a_server(operator: Operator) -> None:
    assert operator.run("up", LINE).status == 0
    operator.serves(1)
    first = operator.host.docker.client.containers.get(LINE).id
    again = operator.run("up", LINE)
    assert again.status == 0 and "generation 1 serves this already" in again.output
    assert operator.host.docker.client.containers.get(LINE).id == first

    changed = operator.run("up", LINE, *SIXTEEN, "--json")
    assert (changed.status, document(changed)["running"], document(changed)["changed"]) == (0, 2, True)
    operator.serves(2)
    found = document(operator.run("diff", "--json"))["differences"]
    assert {(one["part"], one["name"], one["before"], one["after"]) for one in found} == {
        ("knob", "MAX_NUM_SEQS", "8", "16"),
        ("launch", "--max-num-seqs", "8", "16"),
    }

    assert operator.server.generation(1).image.digest == operator.host.toy.entry(R1).digest
    back = operator.run("rollback")
    assert back.status == 0 and "first start" not in back.errors
    operator.serves(3)
    assert operator.server.generation(3).launch == operator.server.generation(1).launch

    assert operator.run("switch", "VLLM_MOET_REASONING_TIERS=0").status == 0
    operator.serves(4)
    inside = operator.host.docker.client.containers.get(LINE)
    assert "VLLM_MOET_REASONING_TIERS=0" in inside.attrs["Config"]["Env"]
    assert "reasoning-tiers" in inside.logs().decode() and "OFF (set to 0)" in inside.logs().decode()

    assert operator.run("down").status == 0
    assert operator.containers() == {} and operator.run("status").status == 1
    assert places(operator)[-1] == ("switch", "stopped")
    assert operator.run("up").status == 0
    operator.serves(4)
    assert places(operator) == [
        ("up", "superseded"),
        ("up", "superseded"),
        ("rollback", "previous"),
        ("switch", "running"),
    ]
    one = operator.run("status")
    assert one.status == 0 and f"generation 4 (running) of {R1}" in one.output and ", ready" in one.output


def test_caches_are_filled_once_for_each_configuration(operator: Operator) -> None:
    first = operator.run("up", LINE)
    assert "first start of generation 1: CACHE_DIR was not filled" in first.errors
    assert "filling the caches of generation 1" in first.errors
    other = operator.run("up", LINE, "--set", f"IMAGE={R0}")
    assert "first start of generation 2: image: " in other.errors
    assert "first start" not in operator.run("rollback").errors
    operator.serves(3)
    assert "--gpu-memory-utilization=0.94" in operator.host.docker.client.containers.get(LINE).attrs["Args"]


def test_what_does_not_become_ready_is_gone_back_from(operator: Operator) -> None:
    operator.run("up", LINE)
    before = operator.host.docker.client.containers.get(LINE).id
    operator.host.behave(**{"for": {"--max-num-seqs=16": {"fail_at": {"phase": "weights", "status": 9}}}})
    failed = operator.run("up", LINE, *SIXTEEN)
    assert failed.status == 1
    assert "generation 2: crashed" in failed.last and "generation 1 serves again" in failed.last
    operator.serves(1)
    assert operator.host.docker.client.containers.get(LINE).id == before
    server = operator.server
    assert server.place(server.generation(2)) == "failed" and server.failure
    assert server.failure.log and "moet: " in Path(server.failure.log).read_text()
    shown = operator.run("status")
    assert shown.status == 0 and "last failure: generation 2" in shown.output
    # The number is not used again, and what failed can be tried again.
    operator.host.behave()
    assert operator.run("up", LINE, *SIXTEEN).status == 0
    operator.serves(3)
    assert operator.server.failure is None


def test_neither_comes_up_and_the_next_command_goes_on(operator: Operator) -> None:
    operator.run("up", LINE)
    operator.host.behave(fail_at={"phase": "weights", "status": 9})
    failed = operator.run("up", LINE, *SIXTEEN, "--json")
    assert failed.status == 3 and document(failed)["exit"] == 3
    assert "generation 1 did not come back: crashed" in failed.last and "nothing serves now" in failed.last
    assert operator.server.operation is None and operator.run("status").status == 1
    operator.host.behave()
    assert operator.run("up").status == 0
    operator.serves(1)


def test_server_that_crashed_is_started_again_under_its_number(operator: Operator) -> None:
    operator.run("up", LINE)
    operator.host.docker.client.containers.get(LINE).kill()
    assert operator.run("status").status == 1
    assert operator.run("up", LINE).status == 0
    operator.serves(1)
    assert list((operator.host.state / LINE / "logs").iterdir())


def test_key_is_stored_nowhere_and_the_old_one_counts_on_the_way_back(operator: Operator) -> None:
    assert operator.run("up", LINE, VLLM_API_KEY="key-of-old").status == 0
    assert operator.run("status").status == 0
    operator.host.behave(**{"for": {"--max-num-seqs=16": {"fail_at": {"phase": "weights", "status": 9}}}})
    failed = operator.run("up", LINE, *SIXTEEN, VLLM_API_KEY="key-of-new")
    assert failed.status == 1 and "generation 1 serves again" in failed.last
    operator.host.behave()
    refused = operator.run("switch", "VLLM_MOET_REASONING_TIERS=0")
    assert refused.status == 1 and refused.last.startswith("moet serve switch: VLLM_API_KEY is not set")
    assert operator.run("status").status == 0
    for path in operator.host.state.rglob("*"):
        assert not path.is_file() or b"key-of-" not in path.read_bytes(), path


def test_blocks_of_another_format_are_not_read(operator: Operator, tmp_path: Path) -> None:
    tier, other = tmp_path / "kv", tmp_path / "other-model"
    tier.mkdir()
    os.chown(tier, 1000, 1000)
    shutil.copytree(operator.host.model, other)
    given = ("--set", f"KV_OFFLOAD_FS_DIR={tier}", "--set", "KV_OFFLOAD_GIB=0.1")
    assert operator.run("up", LINE, *given).status == 0
    (tier / "fp8_ds_mla-indexer-fp8/model_0123456789ab_r0").mkdir(parents=True)
    refused = operator.run("up", LINE, *given, MODEL_DIR=str(other))
    assert refused.status == 1 and "KV blocks of generation 1 of toy" in refused.last and "--own-kv-dir" in refused.last
    operator.serves(1)
    assert operator.run("up", LINE, *given, "--own-kv-dir", MODEL_DIR=str(other)).status == 0
    operator.serves(2)
    assert "fp8_ds_mla-indexer-fp8-toy-g2" in str(operator.host.docker.client.containers.get(LINE).attrs["Args"])
    # Back to the first, whose folder is its own still.
    assert operator.run("rollback").status == 0
    assert operator.server.generation(3).launch == operator.server.generation(1).launch


WRONG = (
    (("rollback",), "toy has no previous generation"),
    (("rollback", "7"), "toy has no generation 7; there are 1 to 1"),
    (("switch", "VLLM_MOET_NOTHING=0"), "is no switch of toy"),
    (("switch", "VLLM_MOET_REASONING_TIERS=2"), "expected 0 (upstream's path) or 1"),
    (("diff",), "there is no previous generation"),
    (("status", "--server", "other"), "'other' is no server of this user's; there are toy"),
    (("up", "--set", "PORT=1"), "--set and --print need a PROFILE"),
)


def test_wrong_request_is_one_line_and_changes_nothing(operator: Operator) -> None:
    operator.run("up", LINE)
    for words, said in WRONG:
        refused = operator.run(*words)
        assert refused.status == 1 and said in refused.last
        assert refused.output == "" and refused.errors.count("\n") == 1
    operator.serves(1)


def test_image_that_was_pruned_is_pulled_before_anything_is_stopped(operator: Operator) -> None:
    toy, client = operator.host.toy, operator.host.docker.client
    with loopback_registry() as address, Registry(address, plain_http=True) as registry:
        push.push(registry, toy.image(R0), parse(f"{address}/moet/{R0}"), Quiet())
        operator.run("up", LINE, "--set", f"IMAGE={R0}")
        operator.run("up", LINE)
        client.images.remove(R0, force=True)
        back = operator.run("rollback", "--registry", f"{address}/moet/{LINE}", "--plain-http")
        assert back.status == 0, back.errors
        assert back.errors.index(f"pulling {R0}") < back.errors.index("stopping generation 2")
        operator.serves(3)
        assert operator.server.generation(3).image == operator.server.generation(1).image


def test_tag_of_a_release_that_points_at_another_image_is_refused(operator: Operator) -> None:
    client = operator.host.docker.client
    ours, other = client.images.get(R1), client.images.get(R0)
    other.tag(*R1.split(":"))
    try:
        refused = operator.run("up", LINE)
        assert refused.status == 1 and f"{R1} is {other.id}" in refused.last and "never moved" in refused.last
        assert operator.containers() == {} and operator.server.generations == ()
    finally:
        ours.tag(*R1.split(":"))


def test_image_is_pulled_by_its_digest(operator: Operator) -> None:
    toy, client = operator.host.toy, operator.host.docker.client
    with loopback_registry() as address, Registry(address, plain_http=True) as registry:
        push.push(registry, toy.image(R0), parse(f"{address}/moet/{R0}"), Quiet())
        client.images.remove(R0, force=True)
        asked = f"{address}/moet/{LINE}@{toy.entry(R0).digest}"
        made = operator.run("up", LINE, "--set", f"IMAGE={asked}")
        assert made.status == 0, made.errors
        operator.serves(1)
        image = operator.server.generation(1).image
        assert (image.asked, image.tag, image.digest) == (asked, R0, toy.entry(R0).digest)


def test_new_key_is_taken_by_starting_anew(operator: Operator) -> None:
    operator.run("up", LINE, VLLM_API_KEY="key-1")
    assert "serves this already" in operator.run("up", LINE, VLLM_API_KEY="key-1").output
    assert "generation 1 serves again" in operator.run("up", LINE, VLLM_API_KEY="key-2").output
    assert "VLLM_API_KEY=key-2" in operator.host.docker.client.containers.get(LINE).attrs["Config"]["Env"]


def test_print_starts_nothing(operator: Operator) -> None:
    shown = operator.run("up", LINE, "--print")
    assert shown.status == 0 and "docker run" in shown.output and shown.output == operator.run("print", LINE).output
    assert operator.containers() == {} and operator.server.generations == ()
