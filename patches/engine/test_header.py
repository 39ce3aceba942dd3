import datetime

import pytest

from patches.engine.header import FIELDS, parse_header, template

GOOD = {
    "Description": "One thing",
    "Reason": "upstreaming",
    "Step": "one-thing",
    "Switch": "VLLM_MOET_ONE_THING",
    "Forwarded": "no",
    "Drop-When": "upstream does it",
    "Last-Update": "2026-11-29",
}


def lines(**changes: str | None) -> list[str]:
    fields = {**GOOD, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return [f"{name}: {value}" for name, value in fields.items() if value is not None] + [""]


def test_all_fields_are_read() -> None:
    header, faults = parse_header(lines())
    assert not faults
    assert header is not None
    assert (header.description, header.reason, header.step) == ("One thing", "upstreaming", "one-thing")
    assert (header.switch, header.forwarded) == ("VLLM_MOET_ONE_THING", "no")
    assert (header.drop_when, header.last_update) == ("upstream does it", "2026-11-29")


def test_continuation_lines_and_a_dot_for_an_empty_one() -> None:
    text = [*lines(Description=None), "Description: short", " longer", " .", " end", ""]
    header, faults = parse_header(text)
    assert not faults
    assert header is not None
    assert header.description == "short\nlonger\n\nend"


def test_switch_none_means_no_switch() -> None:
    header, faults = parse_header(lines(Switch="none"))
    assert not faults
    assert header is not None
    assert header.switch is None


@pytest.mark.parametrize("reason", ["upstreaming", "cannot be upstreamed", "incompatible"])
def test_the_three_reasons(reason: str) -> None:
    assert parse_header(lines(Reason=reason))[1] == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_named(name: str) -> None:
    header, faults = parse_header([line for line in lines() if not line.startswith(name)])
    assert header is None
    assert [fault for fault in faults if fault.startswith(f"field {name} is missing")]


@pytest.mark.parametrize("name", FIELDS)
def test_an_empty_field_is_named(name: str) -> None:
    assert f"field {name} is empty: fill it in" in parse_header(lines(**{name.replace("-", "_"): ""}))[1]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("Reason", "because", "Reason: 'because' is not one of: upstreaming | cannot be upstreamed | incompatible"),
        ("Step", "One Thing", "Step: 'One Thing' is no step name"),
        ("Step", "1-thing", "Step: '1-thing' is no step name"),
        ("Switch", "MOET_X", "Switch: 'MOET_X' is neither VLLM_MOET_<NAME> nor none"),
        ("Switch", "VLLM_MOET_", "is neither VLLM_MOET_<NAME> nor none"),
        ("Switch", "VLLM_MOET_x", "is neither VLLM_MOET_<NAME> nor none"),
        ("Forwarded", "next week", "Forwarded: 'next week' must be no, not-needed, or where it was sent"),
        ("Forwarded", "not-needed", "Forwarded: not-needed contradicts Reason: upstreaming"),
        ("Last_Update", "29.11.2026", "Last-Update: '29.11.2026' is no date"),
        ("Last_Update", "2026-02-30", "Last-Update: '2026-02-30' is no date"),
        ("Last_Update", "2026-W48-7", "Last-Update: '2026-W48-7' is no date"),
        ("Step", "a\n b", "field Step must be one line"),
    ],
)
def test_a_bad_value_is_quoted_with_what_was_expected(field: str, value: str, fault: str) -> None:
    text = "\n".join(lines(**{field: value})).split("\n")
    header, faults = parse_header(text)
    assert header is None
    assert [found for found in faults if fault in found], faults


def test_unknown_doubled_and_stray_lines_are_numbered() -> None:
    _, faults = parse_header(["Descripton: typo", *lines(), "Step: again", "just words"])
    assert any(fault.startswith("line 1: unknown field 'Descripton'") for fault in faults)
    assert "line 10: field Step stands twice: keep one" in faults
    assert any(fault.startswith("line 11: expected 'Field: value'") for fault in faults)


def test_every_fault_is_told_at_once() -> None:
    _, faults = parse_header(lines(Reason="x", Step="X", Last_Update="never"))
    assert len(faults) == 3


def test_the_template_must_be_filled_in() -> None:
    header, faults = parse_header(template("one-thing", datetime.date(2026, 11, 29)).split("\n"))
    assert header is None
    assert faults == [f"field {name} is empty: fill it in" for name in ("Description", "Reason", "Drop-When")]
