from serving.profiles import fragments
from serving.profiles.model import Value


def test_whole_placeholder_keeps_the_type_and_others_are_text() -> None:
    fragment = {"n": "{value}", "list": [{"path": "/kv/{A}-{B}"}], "fixed": False}
    known: dict[str, Value | None] = {"value": 5, "A": "fp8", "B": True}
    assert fragments.filled(fragment, known) == {"n": 5, "list": [{"path": "/kv/fp8-1"}], "fixed": False}


def test_value_with_braces_is_not_filled_again() -> None:
    assert fragments.filled({"a": "x{value}"}, {"value": "{A}", "A": "no"}) == {"a": "x{A}"}


def test_placeholders_are_found_at_every_depth() -> None:
    assert fragments.placeholders({"a": ["{X}", {"b": "{Y}/{value}"}], "c": 1}) == ["X", "Y", "value"]


def test_objects_merge_and_the_second_has_the_last_word() -> None:
    first, second = {"a": {"x": 1, "y": 1}, "b": 1}, {"a": {"y": 2}, "c": [1]}
    assert fragments.merged(first, second) == {"a": {"x": 1, "y": 2}, "b": 1, "c": [1]}
    assert first == {"a": {"x": 1, "y": 1}, "b": 1}
