from patches.tools.align import Alignment

OLD = [b"%d\n" % number for number in range(10)]


def test_a_region_follows_its_lines() -> None:
    assert Alignment(OLD, [b"new\n", *OLD]).region(2, 5) == (3, 6)
    assert Alignment(OLD, OLD).region(0, 10) == (0, 10)


def test_lines_that_are_gone_leave_the_gap_between_their_neighbours() -> None:
    alignment = Alignment(OLD, OLD[:3] + OLD[6:])
    assert alignment.region(3, 6) == (3, 3)
    assert alignment.region(4, 7) == (3, 4)
    assert not alignment.kept(4)
    assert alignment.kept(7)


def test_edges_of_the_file() -> None:
    assert Alignment(OLD, [b"x\n", *OLD[1:9], b"y\n"]).region(0, 1) == (0, 1)
    assert Alignment(OLD, [b"x\n", *OLD[1:9], b"y\n"]).region(9, 10) == (9, 10)
    assert Alignment(OLD, []).region(2, 4) == (0, 0)
    assert Alignment([], OLD).region(0, 0) == (0, 10)


def test_a_change_is_shown_with_both_versions_own_numbers() -> None:
    new = [b"new\n", *OLD[:4], b"four\n", *OLD[5:]]
    assert Alignment(OLD, new).change(3, 6) == ["@@ -4,3 +5,3 @@", " 3", "-4", "+four", " 5"]
    assert Alignment(OLD, new).change(6, 9) == []


def test_lines_removed_and_a_last_line_without_newline() -> None:
    assert Alignment(OLD, OLD[:4] + OLD[5:]).change(4, 5) == ["@@ -5 +4,0 @@", "-4"]
    assert Alignment([b"a\n", b"b"], [b"a\n", b"c"]).change(1, 2) == ["@@ -2 +2 @@", "-b", "+c"]


def test_a_large_change_is_cut_and_says_so() -> None:
    change = Alignment([b"a\n"], [b"%d\n" % number for number in range(100)]).change(0, 1)
    assert len(change) == 61
    assert change[-1] == "(42 more lines)"
