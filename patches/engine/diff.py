"""Unified diffs, read strictly.

A library was weighed and not taken: those at hand work on decoded text and skip what they do not
recognise, so a mangled hunk would vanish without a word. Here every line must be understood or the
patch is refused.
"""

import re
from dataclasses import dataclass

from patches.engine.errors import PatchError
from patches.engine.text import show, split_lines

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT_HARMLESS = (b"diff --git ", b"index ", b"new file mode 100644")
_GIT_REFUSED = {
    b"deleted file mode": "it deletes a file",
    b"old mode": "it changes a file's mode",
    b"new mode": "it changes a file's mode",
    b"new file mode": "its file mode is not 100644",
    b"rename ": "it renames a file",
    b"copy ": "it copies a file",
    b"similarity index": "it renames a file",
    b"dissimilarity index": "it rewrites a file",
    b"GIT binary patch": "it is binary",
    b"Binary files": "it is binary",
}


@dataclass(frozen=True)
class Hunk:
    """Lines `before` at 1-based line `start` of the old file become `after`. `line`: its place in the patch."""

    start: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    line: int


@dataclass(frozen=True)
class FileDiff:
    """All hunks of one file, in order. `created`: the file does not exist before."""

    path: str
    created: bool
    hunks: tuple[Hunk, ...]


def body_start(lines: list[bytes]) -> int:
    """The index of the first line of the diff; the header lies before it. len(lines) if there is no diff."""
    for index, line in enumerate(lines):
        if line.startswith((b"--- ", b"diff --git ", b"Index: ")):
            return index
    return len(lines)


def named_paths(lines: list[bytes]) -> list[str]:
    """The paths that a diff names, read loosely: for saying what a malformed patch would have touched."""
    found = [line[6:].strip() for line in lines if line.startswith((b"+++ b/", b"--- a/"))]
    return sorted({path.decode("utf-8", "backslashreplace") for path in found})


def parse_diff(data: bytes) -> list[FileDiff]:
    """Parse a patch's diff part (the whole patch may be given: what lies before the diff is skipped).

    Line numbers in messages count from the first line of `data`. Raises PatchError, one line, on anything
    that is not a strict text diff that changes or adds files: deletions, renames, modes, binaries,
    timestamps, stray text.
    """
    if b"\0" in data:
        raise PatchError("holds a NUL byte: an overlay only changes and adds text files")
    lines = split_lines(data)
    at = body_start(lines)
    if at == len(lines):
        raise PatchError("holds no diff: expected '--- a/PATH' and '+++ b/PATH' after the header")
    files: list[FileDiff] = []
    while at < len(lines):
        at = _skip_git_lines(lines, at)
        if at == len(lines):
            raise PatchError(f"line {at}: the diff ends before '--- a/PATH'")
        file, at = _parse_file(lines, at)
        if any(file.path == other.path for other in files):
            raise PatchError(f"names {file.path} twice: put its hunks together")
        files.append(file)
    return files


def _skip_git_lines(lines: list[bytes], at: int) -> int:
    while at < len(lines) and not lines[at].startswith(b"--- "):
        line = lines[at]
        if not line.startswith(_GIT_HARMLESS):
            for start, why in _GIT_REFUSED.items():
                if line.startswith(start):
                    raise PatchError(f"line {at + 1}: {why}: an overlay only changes and adds text files")
            raise PatchError(f"line {at + 1}: neither a hunk nor the head of a file: {show(line)!r}")
        at += 1
    return at


def _parse_file(lines: list[bytes], at: int) -> tuple[FileDiff, int]:
    old = _label(lines[at], b"--- ", at)
    if at + 1 == len(lines) or not lines[at + 1].startswith(b"+++ "):
        raise PatchError(f"line {at + 2}: expected '+++ b/PATH' after '---'")
    new = _label(lines[at + 1], b"+++ ", at + 1)
    if new == "/dev/null":
        raise PatchError(f"line {at + 2}: it deletes a file: an overlay only changes and adds text files")
    created = old == "/dev/null"
    path = _safe_path(new, "b/", at + 1)
    if not created and _safe_path(old, "a/", at) != path:
        raise PatchError(f"line {at + 1}: {old} and {new} differ: an overlay does not rename files")
    at += 2
    hunks: list[Hunk] = []
    while at < len(lines) and lines[at].startswith(b"@@"):
        hunk, at = _parse_hunk(lines, at, hunks, created)
        hunks.append(hunk)
    if not hunks:
        raise PatchError(f"line {at + 1}: {path} has no hunk")
    if created and len(hunks) > 1:
        raise PatchError(f"line {hunks[1].line}: the new file {path} has more than one hunk")
    return FileDiff(path, created, tuple(hunks)), at


def _label(line: bytes, start: bytes, at: int) -> str:
    value = line[len(start) :]
    if value.endswith(b"\r\n"):
        raise PatchError(f"line {at + 1}: ends in CRLF: the patch was converted; save it with plain newlines")
    try:
        text = value.removesuffix(b"\n").decode("ascii")
    except UnicodeDecodeError:
        raise PatchError(f"line {at + 1}: a path must be plain ASCII: {show(line)!r}") from None
    if "\t" in text or text.endswith(" "):
        raise PatchError(f"line {at + 1}: a timestamp or blank follows the path: the patch would not be reproducible")
    return text


def _safe_path(label: str, prefix: str, at: int) -> str:
    path = label.removeprefix(prefix)
    parts = path.split("/")
    if path == label or any(part in ("", ".", "..") for part in parts) or set(path) & set('\\":'):
        raise PatchError(f"line {at + 1}: {label!r} is no path of the form {prefix}PATH inside the wheel")
    return path


def _parse_hunk(lines: list[bytes], at: int, earlier: list[Hunk], created: bool) -> tuple[Hunk, int]:
    head = at + 1
    match = _HUNK.match(lines[at])
    if not match:
        raise PatchError(f"line {head}: malformed hunk head: {show(lines[at])!r}")
    old_start, new_start = int(match[1]), int(match[3])
    old_count, new_count = int(match[2] or 1), int(match[4] or 1)
    before: list[bytes] = []
    after: list[bytes] = []
    at += 1
    while len(before) < old_count or len(after) < new_count:
        at = _take_line(lines, at, head, before, after)
    if at < len(lines) and lines[at].startswith(b"\\"):
        raise PatchError(f"line {at + 1}: a second end-of-file mark")
    if len(before) != old_count or len(after) != new_count:
        raise PatchError(
            f"line {head}: hunk says {old_count} old and {new_count} new lines, "
            f"but holds {len(before)} and {len(after)}: regenerate it"
        )
    if at < len(lines) and lines[at][:1] in (b" ", b"+"):
        raise PatchError(f"line {at + 1}: more lines than the hunk head on line {head} counts: regenerate it")
    hunk = Hunk(old_start, tuple(before), tuple(after), head)
    _check_place(hunk, new_start, earlier, created)
    return hunk, at


def _take_line(lines: list[bytes], at: int, head: int, before: list[bytes], after: list[bytes]) -> int:
    if at == len(lines):
        raise PatchError(f"line {head}: the patch ends inside this hunk: its counts are wrong or it was cut off")
    mark, content = lines[at][:1], lines[at][1:]
    if not lines[at].endswith(b"\n"):
        raise PatchError(f"line {at + 1}: the patch file itself does not end in a newline: it was cut off")
    if at + 1 < len(lines) and lines[at + 1].startswith(b"\\"):
        content = content[:-1]
    if mark == b"\n" or lines[at] == b"\r\n":
        raise PatchError(f"line {at + 1}: empty line inside a hunk: a blank context line is one space")
    if mark not in (b" ", b"-", b"+"):
        raise PatchError(f"line {at + 1}: a hunk line begins with ' ', '-' or '+': {show(lines[at])!r}")
    if mark != b"+":
        before.append(content)
    if mark != b"-":
        after.append(content)
    return at + (1 if content.endswith(b"\n") else 2)


def _check_place(hunk: Hunk, new_start: int, earlier: list[Hunk], created: bool) -> None:
    if created:
        if hunk.start or hunk.before:
            raise PatchError(f"line {hunk.line}: a new file's hunk begins with '@@ -0,0 +1'")
    elif not hunk.before:
        raise PatchError(f"line {hunk.line}: no context line: its place cannot be checked; use three lines of context")
    if hunk.before == hunk.after:
        raise PatchError(f"line {hunk.line}: hunk changes nothing")
    if any(not line.endswith(b"\n") for side in (hunk.before, hunk.after) for line in side[:-1]):
        raise PatchError(f"line {hunk.line}: end-of-file mark before the last line of the hunk")
    if earlier and hunk.start < earlier[-1].start + len(earlier[-1].before):
        raise PatchError(f"line {hunk.line}: hunk overlaps the one before it or is out of order")
    moved = sum(len(other.after) - len(other.before) for other in earlier)
    expected = hunk.start + moved + (1 if created else 0) - (0 if hunk.after else 1)
    if new_start != expected:
        raise PatchError(
            f"line {hunk.line}: hunk says +{new_start}, the hunks before it make it +{expected}: regenerate it"
        )
