"""Values of knobs: read from what a person wrote, and written back."""

import ipaddress
import os
import re
import shlex
from collections.abc import Callable

from images.oci import names
from serving.profiles.model import Kind, Knob, Value

_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}
# Names that Docker, systemd and Kubernetes all take for what they start.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?")
_VOLUME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")
_DEVICE = re.compile(r"[0-9]{1,3}|(GPU|MIG)-[0-9a-zA-Z/-]{8,64}")
_REGISTRY = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
_IMAGE = re.compile(
    rf"(?:{_REGISTRY}/)?{names.REPOSITORY.pattern}(?:(?::{names.TAG.pattern})?@sha256:[0-9a-f]{{64}}|:{names.TAG.pattern})"
)


class ValueProblemError(Exception):
    """A value that a knob does not take: what was expected, without a full stop."""


def parse(knob: Knob, text: str) -> Value:
    """Reads a value as a person writes it. Raises ValueProblemError."""
    if text in knob.refused:
        raise ValueProblemError(f"is refused: {knob.refused[text]}")
    if "\0" in text:
        raise ValueProblemError("expected text without NUL characters")
    value = _READERS[knob.kind](knob, text)
    check(knob, value)
    return value


def check(knob: Knob, value: Value) -> None:
    """Holds a value of the right type against the knob's range or choices. Raises ValueProblemError."""
    if isinstance(value, str) and value in knob.refused:
        raise ValueProblemError(f"is refused: {knob.refused[value]}")
    if knob.choices and value not in knob.choices:
        raise ValueProblemError(f"expected one of {', '.join(map(show, knob.choices))}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = knob.minimum, knob.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueProblemError(f"expected {expected(knob)}")


def expected(knob: Knob) -> str:
    """What a knob takes, in words: "an integer from 1 to 256 (requests)"."""
    if knob.kind == "switch":
        return f"0 or {knob.on}"
    if knob.choices:
        return f"one of {', '.join(map(show, knob.choices))}" + (f" ({knob.unit})" if knob.unit else "")
    words = _WORDS[knob.kind]
    if knob.minimum is not None and knob.maximum is not None:
        words += f" from {show(_plain(knob.minimum))} to {show(_plain(knob.maximum))}"
    return words + (f" ({knob.unit})" if knob.unit else "")


def show(value: Value | None) -> str:
    """A value as a person writes it; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return shlex.join(value)
    return str(value)


def show_of(knob: Knob, value: Value | None) -> str:
    """A knob's value as a person writes it; devices have commas between them."""
    if knob.kind == "devices" and isinstance(value, tuple):
        return ",".join(value)
    return show(value)


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number


def _boolean(_: Knob, text: str) -> Value:
    if text.lower() not in _BOOLEANS:
        raise ValueProblemError("expected 0 or 1")
    return _BOOLEANS[text.lower()]


def _integer(knob: Knob, text: str) -> Value:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueProblemError(f"expected {expected(knob)}")
    return int(text)


def _number(knob: Knob, text: str) -> Value:
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        raise ValueProblemError(f"expected {expected(knob)}")
    return _plain(float(text))


def _switch(knob: Knob, text: str) -> Value:
    if text not in ("0", knob.on):
        raise ValueProblemError(f"expected 0 (upstream's path) or {knob.on}")
    return text


def _address(_: Knob, text: str) -> Value:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueProblemError("expected an IP address, for example 127.0.0.1 or ::1") from None


def _folder(_: Knob, text: str) -> Value:
    if not text.startswith("/") or os.path.normpath(text) in ("/", "//"):
        raise ValueProblemError("expected an absolute path, and not /")
    return os.path.normpath(text)


def _place(_: Knob, text: str) -> Value:
    if text.startswith("/"):
        return _folder(_, text)
    return _matching(_VOLUME, text, "an absolute path, or a volume's name of small letters, digits, . and -")


def _devices(_: Knob, text: str) -> Value:
    found = tuple(text.split(","))
    if not all(_DEVICE.fullmatch(one) for one in found):
        raise ValueProblemError("expected GPUs by index or UUID with commas between them, for example 0,1")
    if len(set(found)) != len(found):
        raise ValueProblemError("expected each GPU once")
    return found


def _text(_: Knob, text: str) -> Value:
    if not text:
        raise ValueProblemError("expected some text")
    return text


def _words(_: Knob, text: str) -> Value:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueProblemError(f"cannot be split into words as a shell does: {str(error).lower()}") from None


def _matching(pattern: "re.Pattern[str]", text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueProblemError(f"expected {what}")
    return text


_READERS: dict[Kind, Callable[[Knob, str], Value]] = {
    "address": _address,
    "boolean": _boolean,
    "choice": _text,
    "devices": _devices,
    "file": _folder,
    "folder": _folder,
    "image": lambda _, text: _matching(_IMAGE, text, "an image with a tag or digest, for example dsv41:vllm0.33.0-r1"),
    "integer": _integer,
    "name": lambda _, text: _matching(_NAME, text, "up to 42 small letters, digits and -, a letter first"),
    "number": _number,
    "place": _place,
    "switch": _switch,
    "text": _text,
    "words": _words,
}

_WORDS: dict[Kind, str] = {
    "address": "an IP address",
    "boolean": "0 or 1",
    "choice": "a choice",
    "devices": "GPUs with commas",
    "file": "an absolute path",
    "folder": "an absolute path",
    "image": "an image",
    "integer": "an integer",
    "name": "a name",
    "number": "a number",
    "place": "an absolute path, or a volume's name",
    "switch": "0 or 1",
    "text": "text",
    "words": "words",
}
