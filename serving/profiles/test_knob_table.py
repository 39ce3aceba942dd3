import pytest

from serving.profiles import knob_table, load


def test_page_has_the_table_of_the_profile() -> None:
    page = knob_table.PAGE.read_text()
    table = knob_table.table(load.load(knob_table.LINE))
    assert knob_table.replaced(page, table) == page, "bazel run //serving/profiles:knob_table"


def test_every_knob_has_one_row_of_four_cells() -> None:
    profile = load.load(knob_table.LINE)
    _, _, *rows = knob_table.table(profile).splitlines()
    assert [row.split("`")[1] for row in rows] == list(profile.knobs)
    assert {row.count("|") - row.count("\\|") for row in rows} == {5}


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = f"before\n{knob_table.BEGIN}\nold\n{knob_table.END}\nafter\n"
    assert knob_table.replaced(page, "new") == f"before\n{knob_table.BEGIN}\nnew\n{knob_table.END}\nafter\n"


@pytest.mark.parametrize("page", ["", f"{knob_table.BEGIN}\n", f"{knob_table.END}\n{knob_table.BEGIN}\n"])
def test_page_without_its_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"docs/operate.md: expected"):
        knob_table.replaced(page, "x")
