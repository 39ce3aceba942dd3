"""Values of the verbs' arguments."""

import argparse
import re


def layers(text: str) -> list[int]:
    """Numbers such as "3,5-7".

    >>> layers("3,5-7")
    [3, 5, 6, 7]
    """
    found: set[int] = set()
    for part in text.split(","):
        span = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if span is None or int(span[2] or span[1]) < int(span[1]):
            raise argparse.ArgumentTypeError(f"expected layers such as 3,5-7, found {text}")
        found |= set(range(int(span[1]), int(span[2] or span[1]) + 1))
    return sorted(found)


def record(text: str) -> tuple[int, int]:
    """A record: "LAYER:EXPERT"."""
    found = re.fullmatch(r"(\d{1,6}):(\d{1,6})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected LAYER:EXPERT such as 3:17, found {text}")
    return int(found[1]), int(found[2])


def count(text: str) -> int:
    """A number of 1 or more."""
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"expected a number of 1 or more, found {text}")
    return int(text)


def number(text: str) -> int:
    """A number of 0 or more."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, found {text}")
    return int(text)
