"""References: what OCI allows, and the line for what it does not."""

import pytest

from images.engine.errors import EngineError
from images.engine.reference import Reference, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dsv41:vllm0.33.0-r1", Reference("", "dsv41", "vllm0.33.0-r1")),
        ("moet/dsv41:r1", Reference("", "moet/dsv41", "r1")),
        ("localhost/dsv41:r1", Reference("localhost", "dsv41", "r1")),
        ("127.0.0.1:5000/a/b__c:r1", Reference("127.0.0.1:5000", "a/b__c", "r1")),
        ("[::1]:5000/dsv41:r1", Reference("[::1]:5000", "dsv41", "r1")),
        ("example.test/dsv41:_1", Reference("example.test", "dsv41", "_1")),
    ],
)
def test_good_references_come_back_as_written(text: str, expected: Reference) -> None:
    assert parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DSV41:r1", "'DSV41' is not an image name"),
        ("dsv41", "has no tag"),
        ("127.0.0.1:5000/dsv41", "has no tag"),
        ("dsv41:", "'' is not a tag"),
        ("dsv41:r 1", "'r 1' is not a tag"),
        ("dsv41:" + "a" * 129, "is not a tag"),
        ("a//b:r1", "'a//b' is not an image name"),
        ("ex_ample.test/a:r1", "'ex_ample.test' is not a registry"),
        ("dsv41@sha256:" + "0" * 64, "give a tag"),
        ("dsv41:r1\n", "is not a tag"),
        ("", "'' is not an image name"),
    ],
)
def test_bad_references_are_named(text: str, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
