import pytest
import yaml

from serving.render import yaml_text

# What YAML 1.1 or 1.2 reads as something else where it is not quoted.
AMBIGUOUS = [
    "y", "n", "yes", "off", "true", "~", "null", "0x1F", "0o17", "017", "1_000", "1e3", ".inf", "12:30:45",
    "2026-01-01", "=", "<<", "-", "?", ":", "#", "&", "*", "!", "|", ">", "%", "@", "`", "-",
]


OTHERS = ["", " x", "x ", "a: b", "a #b", "[a]", "{a}", "\n", "\t", "'", '"', "é\u2028"]


@pytest.mark.parametrize("text", AMBIGUOUS + OTHERS)
def test_text_stays_text(text: str) -> None:
    dumped = yaml_text.dump([{"key": [text]}], "# head\n")
    assert yaml.safe_load(dumped) == {"key": [text]}
    if text in AMBIGUOUS:
        assert f'"{text}"' in dumped or f"'{text}'" in dumped


def test_plain_words_are_plain() -> None:
    assert yaml_text.dump([{"args": "--port=8000", "port": 1, "on_top": True}], "") == (
        "args: --port=8000\nport: 1\non_top: true\n"
    )
