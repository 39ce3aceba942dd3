import pytest

from patches.engine.diff import Hunk, named_paths, parse_diff
from patches.engine.errors import PatchError
from patches.engine.text import split_lines

HEAD = b"--- a/demo/x.py\n+++ b/demo/x.py\n"
HUNK = b"@@ -2,3 +2,4 @@\n b\n+new\n c\n d\n"


def test_a_hunk_knows_its_line_in_both_files() -> None:
    (file,) = parse_diff(b"Description: x\n\n" + HEAD + HUNK)
    assert file.path == "demo/x.py"
    assert not file.created
    assert file.hunks == (Hunk(2, (b"b\n", b"c\n", b"d\n"), (b"b\n", b"new\n", b"c\n", b"d\n"), 5),)


def test_a_count_of_one_may_be_left_out() -> None:
    (file,) = parse_diff(HEAD + b"@@ -7 +7 @@ def f():\n-a\n+b\n")
    assert (file.hunks[0].before, file.hunks[0].after) == ((b"a\n",), (b"b\n",))


def test_a_new_file() -> None:
    (file,) = parse_diff(b"--- /dev/null\n+++ b/demo/y.py\n@@ -0,0 +1,2 @@\n+a\n+b\n")
    assert file.created
    assert file.hunks[0].after == (b"a\n", b"b\n")


def test_git_lines_that_say_nothing_new_pass() -> None:
    git = b"diff --git a/demo/x.py b/demo/x.py\nindex 1234567..89abcde 100644\n"
    new = b"diff --git a/demo/y.py b/demo/y.py\nnew file mode 100644\nindex 0000000..89abcde\n"
    files = parse_diff(git + HEAD + HUNK + new + b"--- /dev/null\n+++ b/demo/y.py\n@@ -0,0 +1 @@\n+a\n")
    assert [file.path for file in files] == ["demo/x.py", "demo/y.py"]


def test_content_that_looks_like_a_diff_is_content() -> None:
    (file,) = parse_diff(HEAD + b"@@ -1,3 +1,3 @@\n a\n--- a/other\n+++ b/other\n c\n")
    assert file.hunks[0].before == (b"a\n", b"-- a/other\n", b"c\n")
    assert file.hunks[0].after == (b"a\n", b"++ b/other\n", b"c\n")


def test_no_newline_at_the_end_on_either_side() -> None:
    mark = b"\\ No newline at end of file\n"
    (file,) = parse_diff(HEAD + b"@@ -1,2 +1,2 @@\n a\n-b\n" + mark + b"+b\n")
    assert (file.hunks[0].before, file.hunks[0].after) == ((b"a\n", b"b"), (b"a\n", b"b\n"))
    (file,) = parse_diff(HEAD + b"@@ -1,2 +1,2 @@\n-a\n+x\n b\n" + mark)
    assert (file.hunks[0].before, file.hunks[0].after) == ((b"a\n", b"b"), (b"x\n", b"b"))


def test_carriage_returns_and_form_feeds_are_content() -> None:
    (file,) = parse_diff(HEAD + b"@@ -1,2 +1,2 @@\n-a\x0cb\r\n+a\r\n \x85\x1c\r\n")
    assert file.hunks[0].before == (b"a\x0cb\r\n", b"\x85\x1c\r\n")
    assert split_lines(b"a\rb\x0cc\n\nd") == [b"a\rb\x0cc\n", b"\n", b"d"]


BAD = {
    "no diff": (b"Description: x\n", "holds no diff"),
    "no hunk": (HEAD, "line 3: demo/x.py has no hunk"),
    "no plus line": (b"--- a/demo/x.py\n" + HUNK, "line 2: expected '+++ b/PATH'"),
    "mangled hunk head": (HEAD + b"@@ -2,3 +2,4\n b\n", "line 3: malformed hunk head"),
    "mangled second head": (HEAD + HUNK + b"@ -9,1 +9,2 @@\n z\n", "line 8: neither a hunk nor the head"),
    "too few lines": (HEAD + b"@@ -2,3 +2,4 @@\n b\n+new\n c\n", "line 3: the patch ends inside this hunk"),
    "too many lines": (HEAD + HUNK + b" e\n", "line 8: more lines than the hunk head on line 3 counts"),
    "too many removed": (HEAD + HUNK + b"-e\n", "line 8: neither a hunk nor the head"),
    "old and new counts cross": (
        HEAD + b"@@ -1,1 +1,1 @@\n-a\n-b\n+c\n",
        "line 3: hunk says 1 old and 1 new lines, but holds 2 and 1",
    ),
    "blank context line stripped": (HEAD + b"@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n", "line 6: empty line inside a hunk"),
    "other mark": (HEAD + b"@@ -1,2 +1,2 @@\n-a\n+b\n*c\n", "line 6: a hunk line begins with ' ', '-' or '+'"),
    "cut off": (HEAD + b"@@ -1 +1 @@\n-a\n+b", "line 5: the patch file itself does not end in a newline"),
    "no context": (HEAD + b"@@ -3,0 +4 @@\n+a\n", "line 3: no context line: its place cannot be checked"),
    "changes nothing": (HEAD + b"@@ -1 +1 @@\n-a\n+a\n", "line 3: hunk changes nothing"),
    "wrong new line": (HEAD + b"@@ -2,3 +3,4 @@\n b\n+new\n c\n d\n", "says +3, the hunks before it make it +2"),
    "wrong line in second hunk": (
        HEAD + HUNK + b"@@ -9 +9 @@\n-y\n+z\n",
        "line 8: hunk says +9, the hunks before it make it +10",
    ),
    "overlap": (HEAD + HUNK + b"@@ -4 +5 @@\n-d\n+e\n", "line 8: hunk overlaps the one before it"),
    "out of order": (HEAD + HUNK + b"@@ -1 +1 @@\n-a\n+e\n", "line 8: hunk overlaps the one before it"),
    "end mark too early": (
        HEAD + b"@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n+x\n b\n",
        "line 3: end-of-file mark before the last line",
    ),
    "two end marks": (
        HEAD + b"@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n\\ No newline at end of file\n",
        "line 7: a second end-of-file mark",
    ),
    "deletion": (b"--- a/demo/x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "line 2: it deletes a file"),
    "git deletion": (b"diff --git a/x b/x\ndeleted file mode 100644\n" + HEAD, "line 2: it deletes a file"),
    "git rename": (b"diff --git a/x b/y\nrename from x\n", "line 2: it renames a file"),
    "git copy": (b"diff --git a/x b/y\ncopy from x\n", "line 2: it copies a file"),
    "git similarity": (b"diff --git a/x b/y\nsimilarity index 90%\n", "line 2: it renames a file"),
    "git mode": (b"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "line 2: it changes a file's mode"),
    "git executable": (b"diff --git a/x b/x\nnew file mode 100755\n", "line 2: its file mode is not 100644"),
    "git binary": (b"diff --git a/x b/x\nGIT binary patch\n", "line 2: it is binary"),
    "binary": (b"diff --git a/x b/x\nBinary files a/x and b/x differ\n", "line 2: it is binary"),
    "NUL": (HEAD + b"@@ -1 +1 @@\n-a\n+\0\n", "holds a NUL byte"),
    "git without a diff": (b"diff --git a/x b/x\nindex 1..2 100644\n", "the diff ends before '--- a/PATH'"),
    "rename by labels": (b"--- a/demo/x.py\n+++ b/demo/y.py\n" + HUNK, "line 1: a/demo/x.py and b/demo/y.py differ"),
    "no prefix": (b"--- demo/x.py\n+++ demo/x.py\n" + HUNK, "line 2: 'demo/x.py' is no path of the form b/PATH"),
    "absolute": (b"--- a//etc/x\n+++ b//etc/x\n" + HUNK, "is no path of the form b/PATH"),
    "upwards": (b"--- a/demo/../x\n+++ b/demo/../x\n" + HUNK, "is no path of the form b/PATH"),
    "backslash": (b"--- a/demo\\x\n+++ b/demo\\x\n" + HUNK, "is no path of the form b/PATH"),
    "quoted": (b'--- "a/demo/x"\n+++ "b/demo/x"\n' + HUNK, "is no path of the form b/PATH"),
    "not ASCII": ("--- a/demo/ä\n+++ b/demo/ä\n".encode() + HUNK, "line 1: a path must be plain ASCII"),
    "timestamp": (b"--- a/demo/x.py\t2026-01-01\n+++ b/demo/x.py\n" + HUNK, "line 1: a timestamp or blank"),
    "trailing blank": (b"--- a/demo/x.py\n+++ b/demo/x.py \n" + HUNK, "line 2: a timestamp or blank"),
    "CRLF patch": ((HEAD + HUNK).replace(b"\n", b"\r\n"), "line 1: ends in CRLF: the patch was converted"),
    "same file twice": (HEAD + HUNK + HEAD + HUNK, "names demo/x.py twice"),
    "mail signature": (HEAD + HUNK + b"-- \n2.39.2\n", "line 8: neither a hunk nor the head"),
    "second hunk in a new file": (
        b"--- /dev/null\n+++ b/demo/y.py\n@@ -0,0 +1 @@\n+a\n@@ -0,0 +2 @@\n+b\n",
        "line 5: the new file demo/y.py has more than one hunk",
    ),
    "context in a new file": (
        b"--- /dev/null\n+++ b/demo/y.py\n@@ -1 +1,2 @@\n a\n+b\n",
        "line 3: a new file's hunk begins with '@@ -0,0 +1'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_understood_is_refused_with_its_line(name: str) -> None:
    data, message = BAD[name]
    with pytest.raises(PatchError) as caught:
        parse_diff(data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_of_a_malformed_diff_are_still_known() -> None:
    assert named_paths(split_lines(HEAD + b"@@ broken\n")) == ["demo/x.py"]
