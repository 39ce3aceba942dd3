"""What is a tier, and a walk that stays in it."""

import os
from pathlib import Path

import pytest

from serving.kvcache import tier
from serving.kvcache.engine_files import Kind
from serving.kvcache.fake_tier import FakeTier
from serving.kvcache.tier import Tier
from tools.cli.errors import UserError


def names(opened: Tier, kind: Kind = Kind.BLOCK) -> set[str]:
    walked = (leaf for folder in opened.folders for leaf in opened.leaves(folder))
    return {f"{leaf.path}/{file.name}" for leaf in walked for file in leaf.files if file.kind is kind}


def inside(root: Path, *paths: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in paths}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "kv"
    folder.mkdir()
    return folder


def test_finds_the_engines_folders_here_and_one_below(root: Path) -> None:
    here, below = FakeTier(root).make(), FakeTier(root / "indexer-fp8", dtype="nvfp4").make()
    FakeTier(root / "a" / "b").make().add(9)
    expected = inside(root, here.add(1), here.add(2, rank=11, group=12), below.add(1))
    temporary = inside(root, here.add_temporary(3))
    (root / here.base / ".o_direct_probe_77.tmp").write_bytes(b"")
    with tier.opened(root) as opened:
        assert [(each.parent, each.base, each.config.dtype) for each in opened.folders] == [
            (None, here.base, "fp8_ds_mla"),
            ("indexer-fp8", below.base, "nvfp4"),
        ]
        assert names(opened) == expected
        assert names(opened, Kind.TEMPORARY) == temporary | {f"{here.base}/.o_direct_probe_77.tmp"}
        assert opened.faults.count == 0


@pytest.mark.parametrize(
    "model", ["deepseek/V4.1", "with space", "new\nline", "ümlaut \U0001f600", "x_0123456789ab", "'"]
)
def test_model_of_any_name(root: Path, model: str) -> None:
    fake = FakeTier(root, model=model).make()
    expected = inside(root, fake.add(1))
    with tier.opened(root) as opened:
        assert names(opened) == expected
        assert opened.folders[0].config.model == model


def test_what_is_not_the_engines_is_not_seen(root: Path) -> None:
    fake = FakeTier(root).make()
    block = fake.add(1)
    rank, leaf, digits = block.parents[2], block.parent, block.name[:5]
    for strange in (
        rank / "README",
        rank / "xyz" / leaf.name / block.name,
        rank / digits[:3] / digits[3:] / block.name,
        leaf / "notes.txt",
        leaf / f"{block.name}\n",
        leaf / os.fsdecode(b"\xff\xfe.bin"),
        leaf / ("a" * 250),
        rank / "000" / "00_g0" / block.name,
        root / "foreign" / "000" / "00_g0" / f"{'0' * 64}.bin",
        root / f"{fake.base}_r0.old" / digits[:3] / leaf.name / block.name,
        root / "lost+found" / "x",
    ):
        strange.parent.mkdir(parents=True, exist_ok=True)
        strange.write_bytes(b"mine")
    (leaf / f"{digits}{'a' * 59}.bin").mkdir()
    os.mkfifo(leaf / f"{digits}{'b' * 59}.bin")
    with tier.opened(root) as opened:
        assert names(opened) == inside(root, block)
        assert opened.faults.count == 0


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    elsewhere = FakeTier(tmp_path / "elsewhere").make()
    target = elsewhere.add(1)
    fake = FakeTier(root).make()
    kept = fake.add(2)
    linked = fake.path(3)
    linked.parent.mkdir(parents=True)
    linked.symlink_to(target)
    (kept.parents[2] / target.parent.parent.name).symlink_to(target.parent.parent)
    (kept.parents[1] / "ff_g9").symlink_to(target.parent)
    (root / f"{fake.base}_r1").symlink_to(target.parents[2])
    (root / "indexer-fp8").symlink_to(elsewhere.root)
    with tier.opened(root) as opened:
        assert names(opened) == inside(root, kept)
        assert len(opened.folders) == 1


def test_config_behind_a_link_or_a_pipe_is_none(root: Path) -> None:
    configs = [root / FakeTier(root, model=model).make().base / "config.json" for model in ("0", "1", "2")]
    for config in configs:
        config.unlink()
        (config.parent.parent / f"{config.parent.name}_r0").mkdir()
    configs[0].symlink_to("/dev/zero")
    os.mkfifo(configs[1])
    configs[2].mkdir()
    with pytest.raises(UserError, match=r"no KV disk tier that can be read: 0_.*/config.json: cannot be read"):
        tier.opened(root).__enter__()


def test_blocks_without_their_config_are_left_alone_and_named(root: Path) -> None:
    good, cut, gone = (FakeTier(root, model=model).make() for model in ("good", "cut", "gone"))
    expected = inside(root, good.add(1))
    cut.add(1)
    gone.add(1)
    (root / cut.base / "config.json").write_text('{"model_name": "cu')
    (root / gone.base / "config.json").unlink()
    (root / gone.base).rmdir()
    with tier.opened(root) as opened:
        assert names(opened) == expected
        assert [line.partition(": ")[2] for line in opened.faults.told] == [
            "is not vLLM's: expected the JSON object of its file-system tier; its blocks are left alone",
            "is not there; its blocks are left alone",
        ]


def test_folder_that_goes_under_the_walk(root: Path) -> None:
    fake = FakeTier(root).make()
    paths = [fake.add(number) for number in range(50)]
    with tier.opened(root) as opened:
        walk = opened.leaves(opened.folders[0])
        next(walk)
        for path in paths:
            path.unlink()
            path.parent.rmdir()
        rest = list(walk)
        assert sum(len(leaf.files) for leaf in rest) == 0
        assert opened.faults.count == 0


def test_another_file_system_is_not_entered(root: Path) -> None:
    FakeTier(root).make().add(1)
    with tier.opened(root) as opened:
        opened.device = -1
        assert names(opened) == set()
        assert "is on another file system; left alone" in opened.faults.told[0]


def test_refuses_what_is_no_tier(root: Path, tmp_path: Path) -> None:
    fake = FakeTier(root)
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "file").write_bytes(b"")
    (root / "photos" / "000" / "00_g0").mkdir(parents=True)
    (root / "photos" / "000" / "00_g0" / f"{'0' * 64}.bin").write_bytes(b"")
    (root / fake.base).mkdir()
    for path, said in (
        (tmp_path / "missing", "there is no such folder"),
        (tmp_path / "file", "Not a directory; expected the folder of a KV disk tier"),
        (tmp_path / "link", "is a link, and links are not followed"),
        (root, "no KV disk tier: expected a folder MODEL_<12 hex digits> with vLLM's config.json"),
        (root / fake.base, "one folder below; name the folder around it"),
    ):
        with pytest.raises(UserError, match=said) as raised:
            tier.opened(path).__enter__()
        assert str(raised.value).startswith(f"{path}: ")


def test_folder_with_a_tier_among_others_is_none(root: Path) -> None:
    fake = FakeTier(root / "kv", model="m").make()
    fake.add(1)
    with tier.opened(root) as opened:
        assert len(names(opened)) == 1
    (root / "photos").mkdir()
    with pytest.raises(UserError, match=f"{root}: no KV disk tier, but {root}/kv is one: name that"):
        tier.opened(root).__enter__()
    FakeTier(root).make()
    with tier.opened(root) as opened:
        assert len(names(opened)) == 1


def test_leaves_no_descriptor_open(root: Path) -> None:
    fake = FakeTier(root).make()
    for number in range(20):
        fake.add(number)
    before = set(os.listdir("/proc/self/fd"))
    with tier.opened(root) as opened:
        names(opened)
        walk = opened.leaves(opened.folders[0])
        next(walk)
        del walk
    assert set(os.listdir("/proc/self/fd")) == before
