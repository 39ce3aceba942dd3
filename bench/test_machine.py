import shutil
from pathlib import Path

import pytest

from bench import machine
from bench.programs import BenchError


def test_too_little_space_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    machine.need_space(tmp_path, free // 2, "part load")
    with pytest.raises(BenchError, match=r"part load needs about [\d.]+ GB in .*, [\d.]+ GB are free; .*--layers"):
        machine.need_space(tmp_path, free * 2, "part load")


def test_the_file_system_is_that_of_the_innermost_mount() -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
    assert machine.file_system(Path("/")) != "proc"


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(BenchError, match=r"no-such-program is not installed; apt-get install .* its-package"):
        machine.versions({"no-such-program": "its-package"}, None)
