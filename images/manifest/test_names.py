"""The grammars of tags and labels."""

import pytest

from images.manifest import names


@pytest.mark.parametrize("tag", ["dsv41:vllm0.33.0-r1", "dsv41:vllm0.33.0-r0", "dsv41:vllm0.33.0-r12"])
def test_right_tag(tag: str) -> None:
    assert names.tag_problems(tag, "dsv41", "vllm0.33.0") == []


@pytest.mark.parametrize("tag", ["dsv41:vllm0.33.0-r1-dev", "dsv41:vllm0.33.0-r12-dev"])
def test_tag_of_what_is_no_release(tag: str) -> None:
    assert names.tag_problems(tag, "dsv41", "vllm0.33.0", released=False) == []
    assert "expected dsv41:vllm0.33.0-r<N>, " in names.tag_problems(tag, "dsv41", "vllm0.33.0")[0]
    assert names.tag_problems(tag.removesuffix("-dev"), "dsv41", "vllm0.33.0", released=False)


@pytest.mark.parametrize("line", ["dsv41_hybrid", "moet/k31_b300", "a__b", "a--b", "a.b"])
def test_right_line(line: str) -> None:
    assert names.tag_problems(f"{line}:vllm0.33.0-r1", line, "vllm0.33.0") == []


@pytest.mark.parametrize(
    ("tag", "line", "base", "message"),
    [
        ("dsv41", "dsv41", "vllm0.33.0", "has no ':', expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0-r", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0-r01", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("dsv41:vllm0.33.0-r1\n", "dsv41", "vllm0.33.0", "is no tag that OCI allows"),
        ("dsv41:vllm0.34.0-r1", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("other:vllm0.33.0-r1", "dsv41", "vllm0.33.0", "expected dsv41:vllm0.33.0-r<N>"),
        ("Dsv41:vllm0.33.0-r1", "Dsv41", "vllm0.33.0", "'Dsv41' is no repository name that OCI allows"),
        ("a___b:vllm0.33.0-r1", "a___b", "vllm0.33.0", "'a___b' is no repository name that OCI allows"),
        ("dsv41:vllm0.33.0+cu130-r1", "dsv41", "vllm0.33.0+cu130", "'vllm0.33.0+cu130-r1' is no tag"),
        ("dsv41:-vllm-r1", "dsv41", "-vllm", "'-vllm-r1' is no tag that OCI allows"),
        (f"dsv41:{'v' * 126}-r1", "dsv41", "v" * 126, "is no tag that OCI allows: at most 128"),
    ],
)
def test_wrong_tag(tag: str, line: str, base: str, message: str) -> None:
    problems = names.tag_problems(tag, line, base)
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(
    "key", ["title", "Org.Example", "org.example.", "org..example", ".org.x", "org.ex_ample", "org/x", ""]
)
def test_wrong_label_key(key: str) -> None:
    problems = names.label_problems({key: "value"})
    assert len(problems) == 1
    assert problems[0].startswith(f"label {key!r}: expected a reverse-DNS name")


@pytest.mark.parametrize("key", ["org.example", "org.example.a-b.c1", "org.opencontainers.image.ref.name"])
def test_right_label_key(key: str) -> None:
    assert names.label_problems({key: "Any text, \u00e9 too; no matter how long" * 9}) == []


@pytest.mark.parametrize("value", ["\x00", "a\tb", "\x7f", "\x9f", "\u2028", "\ud800"])
def test_control_characters_in_labels(value: str) -> None:
    assert "control character" in names.label_problems({"org.example.x": value})[0]
