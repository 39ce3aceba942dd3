"""A module that python_extension made: it imports, calls code of another instruction set, raises, and holds no path."""

import re
from pathlib import Path

import pytest

from tools.native import sample


def test_what_it_computes_is_right() -> None:
    """The source with flags of its own is linked and called where the CPU has them."""
    data = bytes(range(256)) * 9 + b"\xff" * 7
    assert sample.total(data) == sum(data)


def test_what_sources_share_runs_on_every_cpu() -> None:
    """Of an inline function the copy without instruction sets is linked, though the source with them comes first."""
    assert not sample.shared_is_wide()


def test_an_exception_reaches_python() -> None:
    """C++ exceptions become Python's, over the border of the pinned C++ library."""
    with pytest.raises(ValueError, match=r"^refused$"):
        sample.refuse()
    with pytest.raises(TypeError, match="incompatible function arguments"):
        sample.total(3)  # type: ignore[arg-type]


def test_no_path_of_the_build_is_in_it() -> None:
    """Bytes depend on no folder: neither the sandbox, nor the output base, nor a header's place."""
    assert sample.__file__ is not None
    found = re.findall(rb"[ -~]*(?:sandbox|execroot|bazel-out|external/)[ -~]*", Path(sample.__file__).read_bytes())
    assert not found
