import json
from dataclasses import replace
from pathlib import Path

import pytest

from serving.control.made_up import generation, launch
from serving.generations import compat, kv
from serving.generations.compat import Writer
from serving.generations.generation import Generation
from serving.launch.launch import Bind, Launch
from tools.cli.errors import UserError

ROOT = "/var/lib/moet-kv/fp8-indexer-fp8"


def tiered(folder: str, model: str = "/models/a", record: str = "fp8", indexer: str = "fp8") -> Launch:
    root = f"/var/lib/moet-kv/{record}-indexer-{indexer}"
    config = {"kv_connector_extra_config": {"secondary_tiers": [{"type": "fs", "root_dir": root}]}}
    return launch(
        binds=(Bind(model, "/model", False), Bind(folder, "/var/lib/moet-kv", True)),
        arguments=(
            "serve",
            "/model",
            f"--kv-cache-dtype={record}",
            f'--attention-config={{"indexer_kv_dtype":"{indexer}"}}',
            f"--kv-transfer-config={json.dumps(config)}",
            "--kv-offloading-size=64",
        ),
    )


def made(number: int, of: Launch) -> Generation:
    return replace(generation(number), launch=of, outcome="served")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A tier's folder with blocks in the usual place."""
    (tmp_path / "fp8-indexer-fp8/a_123_r0").mkdir(parents=True)
    return str(tmp_path)


def fit(number: int, of: Launch, *before: Generation, own: bool = False, base: str | None = None) -> Launch:
    one = made(number, of)
    image = replace(one.image, base=base) if base else one.image
    return compat.fit(of, image, "toy", number, [Writer("toy", each) for each in before], own)[0]


def test_same_format_shares_the_folder(folder: str) -> None:
    one = tiered(folder)
    assert fit(2, one, made(1, one)) == one
    assert fit(2, replace(one, port=9, name="other"), made(1, one)).arguments == one.arguments


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "/models/b"}, "model /models/a, not /models/b"),
        ({"base": "vllm 0.34.0 abc"}, "base vllm 0.33.0 4ba787ec9, not vllm 0.34.0 abc"),
    ],
)
def test_other_format_in_the_same_folder_is_refused(folder: str, change: dict[str, str], words: str) -> None:
    base = change.get("base")
    other = tiered(folder, **{name: text for name, text in change.items() if name != "base"})
    with pytest.raises(UserError, match="generation 1 of toy") as caught:
        fit(2, other, made(1, tiered(folder)), base=base)
    assert words in str(caught.value) and "--own-kv-dir" in str(caught.value)


def test_formats_that_the_folder_is_named_by_do_not_meet(folder: str) -> None:
    other = tiered(folder, indexer="mxfp4")
    assert fit(2, other, made(1, tiered(folder))) == other


def test_formats_that_share_a_folder_by_extra_arguments_are_refused(folder: str) -> None:
    one = tiered(folder)
    words = tuple(word.replace('"indexer_kv_dtype":"fp8"', '"indexer_kv_dtype":"mxfp4"') for word in one.arguments)
    with pytest.raises(UserError, match="indexer's keys fp8, not mxfp4"):
        fit(2, replace(one, arguments=words), made(1, one))


def test_own_folder_is_beside_it_and_is_found_again(folder: str) -> None:
    first, other = made(1, tiered(folder)), tiered(folder, model="/models/b")
    own = fit(2, other, first, own=True)
    assert kv.disks(own) == [kv.Disk(f"{ROOT}-toy-g2", f"{folder}/fp8-indexer-fp8-toy-g2")]
    assert replace(own, arguments=()) == replace(other, arguments=())
    second = made(2, own)
    # The same again, without being asked for its own folder; and the first, which has the usual one.
    assert fit(3, other, first, second) == own
    assert fit(3, first.launch, first, second) == first.launch


def test_own_folder_of_a_third_format_is_not_shared(folder: str) -> None:
    first = made(1, tiered(folder))
    second = made(2, fit(2, tiered(folder, model="/models/b"), first, own=True))
    with pytest.raises(UserError):
        fit(3, tiered(folder, model="/models/c"), first, second)
    third = fit(3, tiered(folder, model="/models/c"), first, second, own=True)
    assert kv.disks(third)[0].root == f"{ROOT}-toy-g3"


def test_empty_folder_takes_any_format(tmp_path: Path) -> None:
    other = tiered(str(tmp_path), model="/models/b")
    assert fit(2, other, made(1, tiered(str(tmp_path)))) == other


def test_last_writer_counts(folder: str) -> None:
    a, b = tiered(folder), tiered(folder, model="/models/b")
    # Between 1 and 2 a person emptied the folder.
    assert fit(3, b, made(1, a), made(2, b)) == b
    with pytest.raises(UserError, match="generation 2 of toy"):
        fit(3, a, made(1, a), made(2, b))


def test_links_lead_to_the_same_folder(folder: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(UserError):
        fit(2, tiered(str(tmp_path / "link"), model="/models/b"), made(1, tiered(folder)))


def test_server_without_a_tier_meets_nobody(folder: str) -> None:
    assert fit(2, launch(), made(1, tiered(folder))) == launch()


def test_what_is_said_of_a_launch(folder: str) -> None:
    assert kv.document(tiered(folder)) == {
        "record": "fp8",
        "indexer": "fp8",
        "offload_gib": 64.0,
        "disks": [f"{folder}/fp8-indexer-fp8"],
    }
    assert kv.caches(replace(launch(), binds=(Bind("a-volume", kv.CACHES, True),))) == "a-volume"
    volume = tiered("a-volume")
    assert kv.disks(volume) == [kv.Disk(ROOT, "a-volume/fp8-indexer-fp8")]
