"""Makes everything twice and writes down whether it came out the same.

`bazel run //releases/ledger:rebuild` builds in the tree, then once more from a copy in another folder: empty output
base, network cut, other HOME, USER, TZ, LANG and umask. It writes releases/ledger/evidence.json and docs/ledger.md.
With --release, both builds are of the commit that is checked out, stamped as a release is; the tree must have no
changes. With --page, only the page is written, from the evidence that is there.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from releases.ledger import artifacts, page
from releases.ledger.artifacts import Artifact
from releases.ledger.evidence import PATH, SCHEMA, Evidence, Row
from releases.receipts import machine
from releases.tree import build
from releases.tree.git import Git
from tests import elsewhere
from tests.elsewhere import Elsewhere
from tools.cli.errors import UserError
from tools.files import atomic

LINE = "dsv41"
OVERLAY = "//patches/vllm-0.33.0:overlay"
DOCUMENTS = "//releases/ledger:documents"
REFERENCE = ("docs/reference.md", "//tools/moet:reference")
_WRITTEN = (REFERENCE[0], str(page.PATH), str(PATH))
_HASHES: dict[tuple[int, int, int], str] = {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status: 1 also where something differs."""
    parser = argparse.ArgumentParser(prog="rebuild", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--release", action="store_true", help="stamp both builds with the commit, as a release is")
    parser.add_argument("--page", action="store_true", help="write docs/ledger.md alone")
    options = parser.parse_args(arguments)
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")).resolve()
    try:
        if options.page:
            evidence = Evidence.read((root / PATH).read_bytes())
        else:
            evidence = double_build(root, options.release)
            atomic.write(root / PATH, evidence.encode())
    except (UserError, elsewhere.BuildError) as error:
        print(f"rebuild: {error}", file=sys.stderr)
        return 1
    atomic.write(root / page.PATH, page.text(evidence).encode())
    differing = [row.name for row in evidence.rows if not row.same]
    print(f"wrote {page.PATH}: {len(evidence.rows) - len(differing)} of {len(evidence.rows)} bit-identical")
    if differing:
        print(f"rebuild: {', '.join(differing)}: came out differently the second time", file=sys.stderr)
    return 1 if differing else 0


def double_build(root: Path, release: bool) -> Evidence:
    """Builds everything in the tree at `root` and elsewhere. Raises UserError or elsewhere.BuildError."""
    git = Git(root)
    commit, modified = git.head(), git.dirty()
    if release and modified:
        raise UserError(f"--release: the tree has {len(modified)} changes ({modified[0]}, ...): commit them first")
    listed = artifacts.of_line(lambda path: _read(root / path), LINE, OVERLAY)
    labels = list(dict.fromkeys(one.target for one in listed))
    options = ["--config=release"] if release else []
    umask = os.umask(0o022)
    os.umask(umask)
    with _elsewhere(root, commit if release else None) as made:
        print(f"first: {len(labels)} targets in the tree", file=sys.stderr)
        second_umask = os.umask(umask)
        first = _in_tree(root, listed, labels, options, made.folder)
        os.umask(second_umask)
        print("second: once more from nothing, elsewhere", file=sys.stderr)
        outputs = _build(made, [*options, *labels, DOCUMENTS, REFERENCE[1]])
        second = _digests(outputs, listed)
        layout = next(outputs / one.path for one in listed if one.group == artifacts.IMAGES)
        second |= json.loads(made.bazel("run", *options, DOCUMENTS, "--", str(layout)))
        made.bazel("run", *options, REFERENCE[1])
        second[REFERENCE[0]] = _digest(made.folder / REFERENCE[0])
    about = {
        "schema": SCHEMA,
        "line": LINE,
        "commit": commit,
        "modified": modified,
        "stamped": release,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "bazel run //releases/ledger:rebuild" + (" -- --release" if release else ""),
        "hardware": machine.hardware(),
        "software": machine.software(),
        "bazel": _bazel(root),
        "builds": {
            "first": "in the tree, its own output base",
            "second": "another folder, empty output base, network cut, other HOME, USER, TZ, LANG and umask",
        },
    }
    named = [(one.name, one.group, one.target) for one in listed]
    named += [(name, artifacts.ATTESTATIONS, "") for name in artifacts.DOCUMENTS]
    named.append((REFERENCE[0], artifacts.TOOLS, REFERENCE[1]))
    return Evidence(about, tuple(Row(*one, first[one[0]], second[one[0]]) for one in named))


def _in_tree(
    root: Path, listed: Sequence[Artifact], labels: Sequence[str], options: Sequence[str], copy: Path
) -> dict[str, str]:
    """The digests of the first build. Raises UserError where the tree is no longer what was copied to `copy`."""
    outputs = build.build(root, labels, release=bool(options))
    layout = next(outputs / one.path for one in listed if one.group == artifacts.IMAGES)
    documents = json.loads(build.run(root, ["run", *options, DOCUMENTS, "--", str(layout)]))
    build.run(root, ["run", *options, REFERENCE[1]])
    changed = [name for name, digest in elsewhere.digests(copy).items() if not _same(root / name, digest)]
    changed = [name for name in changed if name not in _WRITTEN and not name.startswith(".git/")]
    if changed:
        raise UserError(f"{changed[0]}: changed while the tree was built: leave the tree alone, and run this again")
    return {**_digests(outputs, listed), **documents, REFERENCE[0]: _digest(root / REFERENCE[0])}


def _same(path: Path, digest: str) -> bool:
    return path.is_file() and elsewhere.digests(path)["."] == digest


@contextlib.contextmanager
def _elsewhere(root: Path, commit: str | None) -> Iterator[Elsewhere]:
    """The tree elsewhere; with a commit, as a repository of its own that is at it."""
    with elsewhere.elsewhere(root) as made:
        if commit is not None:
            fetched = [["init", "--quiet"], ["fetch", "--quiet", str(root), commit], ["reset", "--quiet", commit]]
            for words in fetched:
                subprocess.run(["git", "-C", str(made.folder), *words], check=True, env=made.env)
        yield made


def _build(made: Elsewhere, words: Sequence[str]) -> Path:
    options = [word for word in words if word.startswith("--")]
    made.bazel("build", f"--repository_cache={elsewhere.repository_cache()}", *words)
    return Path(made.bazel("info", *options, "bazel-bin").strip())


def _digests(outputs: Path, listed: Sequence[Artifact]) -> dict[str, str]:
    return {one.name: _digest(outputs / one.path) for one in listed}


def _digest(path: Path) -> str:
    """sha256:<hex> of a file, of a folder's sorted list, or of a layout's manifest, once its blobs were checked."""
    if path.is_file():
        return f"sha256:{_hash(path)}"
    found = {str(file.relative_to(path)): _hash(file) for file in sorted(path.rglob("*")) if file.is_file()}
    if "oci-layout" in found:
        wrong = [name for name, digest in found.items() if name.startswith("blobs/") and not name.endswith(digest)]
        if wrong:
            raise UserError(f"{path}: {wrong[0]} does not have the bytes its name says: bazel clean, then again")
        return str(json.loads((path / "index.json").read_bytes())["manifests"][0]["digest"])
    listing = "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))
    return "sha256:" + hashlib.sha256(listing.encode()).hexdigest()


def _hash(path: Path) -> str:
    """SHA-256 of a file; a layout's blobs are links to layers, and read once."""
    stat = path.stat()
    identity = (stat.st_dev, stat.st_ino, stat.st_mtime_ns)
    if identity not in _HASHES:
        with path.open("rb") as data:
            _HASHES[identity] = hashlib.file_digest(data, "sha256").hexdigest()
    return _HASHES[identity]


def _bazel(root: Path) -> str:
    """Name and version of Bazel; Debian's does not know its own, its package does."""
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}", "bazel-bootstrap"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    return build.run(root, ["--version"], quiet=True).strip()


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
