"""The libraries are made by the pinned g++, wherever they are built.

LIBRARIES and RUNTIME (environment): paths of the libraries, and of the CUDA runtime that is linked into them.
"""

import os
import re
from pathlib import Path

import pytest

from third_party.debian import lockfile
from third_party.gcc import identity

RUNTIME = Path(os.environ["RUNTIME"], "nvidia/cu13/lib/libcudart_static.a")


@pytest.mark.parametrize("library", os.environ["LIBRARIES"].split())
def test_compilers(library: str) -> None:
    runtime = {text.decode() for text in re.findall(rb"GCC: [^\0]*", RUNTIME.read_bytes())}
    assert runtime
    pinned = identity.pinned(lockfile.read(Path("third_party/debian/bookworm.lock.bzl")))
    assert set(identity.comments(Path(library))) == {pinned, *runtime}


@pytest.mark.parametrize("library", os.environ["LIBRARIES"].split())
def test_no_path_of_the_build(library: str) -> None:
    data = Path(library).read_bytes()
    assert [text for text in (b"bazel-out", b"execroot", b"launch/g++") if text in data] == []
