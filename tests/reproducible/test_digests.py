"""The digests that docs/reproducibility.md states, against the images of this tree."""

import os
from pathlib import Path


def test_documented_digests_are_those_of_the_tree() -> None:
    documented = Path("docs/reproducibility.md").read_text()
    for path in os.environ["DIGESTS"].split():
        digest = Path(path).read_text().strip()
        assert f"`{digest}`" in documented, f"docs/reproducibility.md lacks {digest} of {path}: write it there"
