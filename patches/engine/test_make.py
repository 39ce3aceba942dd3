import random

from unidiff.patch import PatchSet

from patches.engine.diff import parse_diff
from patches.engine.make import make_diff

OLD = b"".join(b"%d\n" % number for number in range(1, 21))


def test_labels_context_and_nothing_else() -> None:
    assert make_diff("demo/x.py", OLD, OLD.replace(b"10\n", b"ten\n")) == (
        b"--- a/demo/x.py\n+++ b/demo/x.py\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


def test_a_new_file_and_a_missing_last_newline() -> None:
    assert make_diff("demo/y.py", None, b"a\nb") == (
        b"--- /dev/null\n+++ b/demo/y.py\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    )


def test_no_difference_no_diff() -> None:
    assert make_diff("demo/x.py", OLD, OLD) == b""


def test_a_file_may_become_empty() -> None:
    (file,) = parse_diff(make_diff("demo/x.py", b"a\n", b""))
    assert (file.hunks[0].before, file.hunks[0].after) == ((b"a\n",), ())


def test_another_reader_of_diffs_sees_the_same_hunks() -> None:
    chance = random.Random(11)
    for _ in range(100):
        lines = [b"%d\n" % chance.randrange(9) for _ in range(60)]
        edited = [line for line in lines if chance.random() > 0.05]
        edited.insert(chance.randrange(len(edited)), b"new\n")
        data = make_diff("demo/x.py", b"".join(lines), b"".join(edited))
        (mine,) = parse_diff(data)
        (theirs,) = PatchSet(data.decode())
        assert theirs.path == mine.path
        assert [(hunk.start, hunk.before, hunk.after) for hunk in mine.hunks] == [
            (
                hunk.source_start,
                tuple(line.value.encode() for line in hunk.source_lines()),
                tuple(line.value.encode() for line in hunk.target_lines()),
            )
            for hunk in theirs
        ]
