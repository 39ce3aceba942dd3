import json
import os
from pathlib import Path

import pytest

from serving.preflight import model_folder, safetensors, shards
from serving.preflight.host import Host
from serving.preflight.made_up import checkpoint, only, shard, subject
from serving.preflight.result import Result

INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model")


def looked(model: Path) -> list[Result]:
    return [*model_folder.check(subject(model), Host()), *shards.check(subject(model), Host())]


def found(model: Path, check: str) -> Result:
    result = only(looked(model), check)
    assert result.state == "finding" and result.why and result.mend
    return result


def test_whole_checkpoint_is_ok(model: Path) -> None:
    assert [one.state for one in looked(model)] == ["ok", "ok"]
    assert only(looked(model), "shards").what == "3 of 3, 0.0 GiB, 6 tensors"


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    result = found(tmp_path / "a b", "model")
    assert result.what == f"MODEL_DIR is {tmp_path}/a b, which does not exist"
    assert result.mend.endswith(f"hf download REPOSITORY --local-dir '{tmp_path}/a b'")
    assert only(looked(tmp_path / "a b"), "shards").state == "skipped"


def test_folder_and_files_closed_to_the_containers_user(model: Path) -> None:
    (model / "model-1.safetensors").chmod(0o000)
    assert "1 cannot be read by user 1000: model-1.safetensors" in found(model, "shards").what
    (model / "model-1.safetensors").chmod(0o644)
    assert only(looked(model), "shards").state == "ok"
    model.chmod(0o000)
    assert found(model, "model").what == f"MODEL_DIR is {model}, closed to user 1000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON: "),
        ("[]", "is no JSON object"),
        ('{"model_type": NaN}', "is no JSON: NaN is no JSON number"),
        ("[" * 100_000, "is no JSON that anybody wrote: too deeply nested"),
        ('{"model_type": "deepseek_v3"}', "model_type is 'deepseek_v3', expected 'deepseek_v41'"),
        ('{"model_type": "\\u001b[31m"}', r"model_type is '\x1b[31m', expected"),
        ("{}", "model_type is None, expected 'deepseek_v41'"),
    ],
)
def test_config_that_is_not_the_lines(text: str, said: str, model: Path) -> None:
    (model / "config.json").write_text(text)
    assert said in found(model, "model").what


def test_truncated_download_has_found_and_expected_bytes(model: Path) -> None:
    path = model / "model-1.safetensors"
    data = path.read_bytes()
    whole = len(data)
    os.truncate(path, whole - 1)
    result = found(model, "shards")
    assert result.what == f"model-1.safetensors has {whole - 1:,} bytes, expected {whole:,}"
    assert result.mend == f"rm {path} && hf download REPOSITORY --local-dir {model}"
    os.truncate(path, 20)
    assert "has 20 bytes, its header alone ends at" in found(model, "shards").what
    os.truncate(path, 3)
    assert "has 3 bytes, expected 8 and a header" in found(model, "shards").what
    path.write_bytes(data + b"x")
    assert f"has {whole + 1:,} bytes, expected {whole:,}" in found(model, "shards").what


def test_many_missing_shards_are_one_line(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model", shards=9)
    for path in model.glob("*.safetensors"):
        path.unlink()
    names = ", ".join(f"model-{number}.safetensors" for number in range(5))
    assert found(model, "shards").what == f"9 missing: {names}, and 4 more"


def test_shard_without_the_tensors_that_the_index_promises(model: Path) -> None:
    (model / "model-1.safetensors").write_bytes(shard({"layers.1.w": 1000}))
    assert found(model, "shards").what == "model-1.safetensors lacks layers.1.scale"


def test_shard_that_no_index_names_is_a_hint(model: Path) -> None:
    (model / "old.safetensors").write_bytes(b"")
    ok, hint = (one for one in looked(model) if one.check == "shards")
    assert ok.state == "ok" and hint.state == "hint"
    assert hint.what == f"1 that {INDEX} does not name: old.safetensors"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../up.safetensors", "'../up.safetensors'"),
        ("/etc/passwd", "'/etc/passwd'"),
        ("sub/a.safetensors", "'sub/a.safetensors'"),
        ("..", "'..'"),
        ("", "''"),
        ("a\0b.safetensors", r"'a\x00b.safetensors'"),
        ("\ud800.safetensors", r"'\ud800.safetensors'"),
    ],
)
def test_index_that_names_no_shard_of_the_folder(name: str, shown: str, model: Path) -> None:
    (model / INDEX).write_text(json.dumps({"weight_map": {"t": name}}))
    (model.parent / "up.safetensors").write_bytes(shard({"t": 1}))
    result = next(one for one in looked(model) if one.state == "finding")
    assert result.what == f"{INDEX} names {shown}: expected names of .safetensors files in the folder"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON: "),
        ("{}", "has no weight_map of tensor to shard"),
        ('{"weight_map": {}}', "has no weight_map"),
        ('{"weight_map": {"t": 1}}', "weight_map: t: expected a file's name, found 1"),
        ('{"weight_map": {"t": NaN}}', "is no JSON: NaN is no JSON number"),
    ],
)
def test_index_that_is_none(text: str, said: str, model: Path) -> None:
    (model / INDEX).write_text(text)
    assert said in next(one.what for one in looked(model) if one.state == "finding")
    (model / INDEX).unlink()
    assert "No such file or directory" in next(one.what for one in looked(model) if one.state == "finding")


def test_name_that_no_file_can_have(model: Path) -> None:
    (model / INDEX).write_text(json.dumps({"weight_map": {"t": f"{'x' * 300}.safetensors"}}))
    assert "x.safetensors cannot be read: File name too long" in next(one.what for one in looked(model) if one.mend)


def with_header(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff" * 64, "a header of 18,446,744,073,709,551,615 bytes, more than 100,000,000"),
        (with_header(b"not json"), "is no JSON"),
        (with_header(b"\xff\xfe"), "is no JSON"),
        (with_header(b'{"t": {"data_offsets": [0, NaN]}}'), "NaN is no JSON number"),
        (with_header(b'{"t": {"data_offsets": [0, 1e3]}}'), "expected data_offsets of two integers, found [0, 1000.0]"),
        (with_header(b'{"t": {"data_offsets": [4, 2]}}'), "expected data_offsets of two integers, found [4, 2]"),
        (with_header(b'{"t": {"data_offsets": [-1, 2]}}'), "found [-1, 2]"),
        (with_header(b'{"t": {"data_offsets": [true, 2]}}'), "found [True, 2]"),
        (with_header(b'{"t": {}}'), "found None"),
        (with_header(b'{"t": {"data_offsets": [0, 999999999999]}}'), "expected 1,000,000,000,0"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is no safetensors file: a header of"),
    ],
)
def test_shard_that_is_none(data: bytes, said: str, model: Path) -> None:
    (model / "model-1.safetensors").write_bytes(data)
    assert said in found(model, "shards").what


def test_links_are_followed_only_where_the_container_can(model: Path, tmp_path: Path) -> None:
    path = model / "model-1.safetensors"
    path.rename(model / "blob")
    path.symlink_to("blob")
    assert only(looked(model), "shards").state == "ok"
    for target in (model / "blob", "../model/blob", path.name):
        path.unlink()
        path.symlink_to(target)
        result = found(model, "shards")
        assert result.what == f"1 are links that lead out of the folder: {path.name} to {target}"
        assert result.mend.startswith(f"cp -rL {model} ")
    (tmp_path / "config.json").write_text("{}")
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("../config.json")
    assert "is a link to ../config.json, outside of the folder" in found(model, "model").what


def test_pipe_does_not_keep_its_reader_waiting(model: Path) -> None:
    for name in ("model-1.safetensors", "config.json"):
        (model / name).unlink()
        os.mkfifo(model / name)
    assert "model-1.safetensors is no regular file" in found(model, "shards").what
    assert "is no regular file" in found(model, "model").what


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(with_header(b'{"__metadata__": {"format": "pt"}}'))
    read = safetensors.read(tmp_path / "a")
    assert read.size == read.expected and not read.tensors
