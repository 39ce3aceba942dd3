"""YAML that every reader takes alike."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

# A string that neither YAML 1.1 nor 1.2 reads as anything else; all others are quoted.
_PLAIN = re.compile(r"[A-Za-z_/-]*[A-Za-z/][A-Za-z0-9_./:=-]*[A-Za-z0-9_./=-]")


class _Dumper(yaml.SafeDumper):
    """Quotes what is not plain, and names no part of a document for use in another."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Whether equal values are written out again: always."""
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)


def dump(documents: Iterable[Any], head: str) -> str:
    """Documents of plain data, after `head`, which is whole lines of comment."""
    whole = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)
    return f"{head}{whole}"
