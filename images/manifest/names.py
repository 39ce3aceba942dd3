"""The grammars of names: image references and labels as OCI has them, steps and switches as Moet has them."""

import difflib
import re

from images.oci.names import REPOSITORY, TAG

_RELEASE = re.compile(r"0|[1-9][0-9]*")
_LABEL = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*\.[a-z0-9]+([.-][a-z0-9]+)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_STEP = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SWITCH = re.compile(r"VLLM_MOET_[A-Z0-9]+(_[A-Z0-9]+)*")

_OCI = "org.opencontainers."
_OCI_KEYS = tuple(
    _OCI + "image." + name
    for name in (
        "authors",
        "base.digest",
        "base.name",
        "created",
        "description",
        "documentation",
        "licenses",
        "ref.name",
        "revision",
        "source",
        "title",
        "url",
        "vendor",
        "version",
    )
)


def tag_problems(tag: str, line: str, base: str, released: bool = True) -> list[str]:
    """What is wrong with an image tag, one line a problem.

    It must be `<line>:<base>-r<N>`, `base` being the base's name and version together, and end in `-dev` where
    the image is not `released`: a release's tag never names anything else.
    """
    repository, colon, name = tag.partition(":")
    dev = "" if released else "-dev"
    expected = f"expected {line}:{base}-r<N>{dev}, for example {line}:{base}-r1{dev}"
    if not colon:
        return [f"tag {tag!r}: has no ':', {expected}"]
    problems = []
    if not REPOSITORY.fullmatch(repository):
        problems.append(
            f"tag {tag!r}: {repository!r} is no repository name that OCI allows: "
            "lower-case letters and digits, joined by '.', '_', '__', dashes or '/'"
        )
    if not TAG.fullmatch(name):
        problems.append(
            f"tag {tag!r}: {name!r} is no tag that OCI allows: "
            "at most 128 letters, digits, '_', '.' and '-', not beginning with '.' or '-'"
        )
    if not problems and (repository != line or not _is_release_of(name, base + "-r", dev)):
        problems.append(f"tag {tag!r}: {expected}")
    return problems


def label_problems(labels: dict[str, str]) -> list[str]:
    """What is wrong with labels, one line a problem: keys are reverse-DNS, values one line of text."""
    problems = []
    for key, value in sorted(labels.items()):
        if not _LABEL.fullmatch(key):
            problems.append(
                f"label {key!r}: expected a reverse-DNS name such as org.example.name: "
                "lower-case letters and digits, joined by '.' or '-'"
            )
        elif key.startswith(_OCI) and key not in _OCI_KEYS:
            near = difflib.get_close_matches(key, _OCI_KEYS, 1)
            hint = f"did you mean {near[0]}?" if near else "use a domain of your own"
            problems.append(f"label {key}: OCI reserves {_OCI}* and has no such key: {hint}")
        bad = _CONTROL.search(value)
        if bad:
            problems.append(f"label {key}: control character {bad[0]!r} at {bad.start()}: use one plain line")
    return problems


def step_name_problem(name: str) -> str | None:
    """Why `name` is no step name, or None."""
    if _STEP.fullmatch(name):
        return None
    return f"step {name!r}: expected lower-case words joined by '-', such as native-next-n"


def switch_problem(name: str) -> str | None:
    """Why `name` is no switch, or None."""
    if _SWITCH.fullmatch(name):
        return None
    return f"switch {name!r}: expected VLLM_MOET_<NAME> in capitals, digits and '_'"


def control_character(value: str) -> str | None:
    """The first character of `value` that may not stand in a label or a path, or None."""
    bad = _CONTROL.search(value)
    return bad[0] if bad else None


def _is_release_of(name: str, start: str, end: str) -> bool:
    whole = name.startswith(start) and name.endswith(end)
    return whole and _RELEASE.fullmatch(name[len(start) : len(name) - len(end)]) is not None
