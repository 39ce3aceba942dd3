import json
import zipfile
from pathlib import Path

import pytest

from bench import plan
from bench.programs import BenchError


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(tmp_path / "real.whl", "w") as wheel:
        wheel.writestr("a.py", "12345")
        wheel.writestr("b.py", "678")
    for name in ("linked.whl", "tool"):
        (tmp_path / name).symlink_to(tmp_path / "real.whl")
    layer = {"comment": "c", "mtime": 7, "drop": ["x/*"], "wheels": ["linked.whl"]}
    layers = [{"name": name, **layer} for name in ("torch", "vllm")]
    value = {
        "image": "//images:line",
        "layers": layers,
        "layout": "images/line/line",
        "loader": "//images/line:load",
        "patches": "patches/p-1",
        "tools": {"assemble": "tool", "wheel_layer": "tool"},
    }
    (tmp_path / "plan.json").write_text(json.dumps(value))
    return tmp_path / "plan.json"


def test_wheels_are_real_files_and_programs_stay_where_their_runfiles_are(written: Path) -> None:
    read = plan.read(written)
    assert read.wheels == [written.parent / "real.whl"] * 2
    assert read.wheel_layer == written.parent / "tool"
    assert [layer.unpacked for layer in read.layers] == [8, 8]


def test_only_keeps_the_named_layers_in_the_images_order(written: Path) -> None:
    read = plan.read(written)
    assert [layer.name for layer in read.only(["vllm", "torch"]).layers] == ["torch", "vllm"]
    assert [layer.name for layer in read.only(["vllm"]).layers] == ["vllm"]


def test_an_unknown_layer_is_named_with_the_known_ones(written: Path) -> None:
    with pytest.raises(BenchError, match="no layer of wheels called cuda; it has torch, vllm"):
        plan.read(written).only(["torch", "cuda"])
