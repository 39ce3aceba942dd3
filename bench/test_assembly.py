import shutil
import zipfile
from pathlib import Path

import pytest

from bench import assembly
from bench.assembly import INSTALL, OURS, Samples
from bench.meter import Cost
from bench.peers import Peer, Sample
from bench.plan import Plan, WheelLayer
from bench.programs import BenchError

SITE = "usr/local/lib/python3.11/dist-packages"


def wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-run = {name}:main\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, **metadata}.items():
            archive.writestr(file, text)
        recorded = [*files, *metadata, f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in recorded))
    return path


@pytest.fixture
def content(tmp_path: Path) -> Plan:
    folder = tmp_path / "wheels"
    folder.mkdir()
    one = wheel(folder, "one", {"one.py": "1", "one_build.py": "dropped"})
    two = wheel(folder, "two", {"two/__init__.py": "", "two/data.txt": "22", "two-1.0.data/data/share/two": "2"})
    programs = Path("images/oci").absolute()
    layers = (WheelLayer("a", "", 0, (f"{SITE}/one_build.py",), (one,)), WheelLayer("b", "", 0, (), (two,)))
    return Plan("", "", Path(), Path(), programs / "wheel_layer", programs / "assemble", layers)


class Recorder:
    """A peer that costs nothing and keeps what it was given."""

    def __init__(self) -> None:
        self.trees: list[list[str]] = []

    def __call__(self, context: Path, work: Path) -> Sample:
        assert (context / "Dockerfile").read_text() == "FROM scratch\nCOPY tree/ /\n"
        assert list(work.iterdir()) == []
        tree = context / "tree"
        self.trees.append(sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()))
        shutil.copytree(tree, work / "copy")
        return Sample(Cost(1, 1, 1), 1)


def test_every_way_is_measured_on_the_same_content_in_alternating_order(content: Plan, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    recorder, samples, steps = Recorder(), Samples(), list[str]()
    assembly.compare(content, [Peer("p", "a peer", {}, recorder)], 2, work, samples, steps.append)
    assert steps == [INSTALL, OURS, "a peer", INSTALL, "a peer", OURS]
    assert list(work.iterdir()) == []
    assert [len(runs) for runs in (samples.ours, samples.install, samples.peers["p"])] == [2, 2, 2]
    assert samples.ours[0].image_bytes == samples.ours[1].image_bytes > 0
    first, second = recorder.trees
    assert first == second
    for path in ("one.py", "two/__init__.py", "two/data.txt"):
        assert f"{SITE}/{path}" in first
    assert "usr/local/share/two" in first
    assert f"{SITE}/one_build.py" not in first
    # RECORD, INSTALLER and a script for each wheel are files of the layers too.
    assert samples.files == 4 + 2 * (4 + 1 + 1)


def test_different_content_is_refused(content: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_INSTALLERS_OWN", ())
    with pytest.raises(BenchError, match="would not be compared on the same content"):
        assembly.compare(content, [], 1, tmp_path, Samples(), lambda _: None)


def test_a_wheel_that_cannot_be_installed_is_one_line(content: Plan, tmp_path: Path) -> None:
    content.layers[1].wheels[0].write_bytes(b"no wheel")
    with pytest.raises(BenchError, match=r"uv failed with status \d+: .+") as caught:
        assembly.compare(content, [], 1, tmp_path, Samples(), lambda _: None)
    assert "\n" not in str(caught.value)
