"""System calls that fail, for tests: what an older kernel lacks, or a container engine forbids."""

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_FAIL, _ALLOW = 0x00050000, 0x7FFF0000
_ARGUMENTS = 16


@dataclass(frozen=True)
class Rule:
    """One call that fails with `error`.

    Attributes:
        number: of the call on x86-64.
        error: the errno that it gives.
        argument: only where this one of its arguments, counted from 0, is `value`; None: always.
        value: see `argument`.
    """

    number: int
    error: int
    argument: int | None = None
    value: int = 0


def forbid(rules: Sequence[Rule]) -> None:
    """Makes calls fail in this process from now on, by a seccomp filter; there is no way back."""
    code = []
    for rule in rules:
        last = [(_RETURN, 0, 0, _FAIL | rule.error)]
        if rule.argument is not None:
            last = [(_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_EQUAL, 0, 1, rule.value), *last]
        code += [(_LOAD, 0, 0, 0), (_EQUAL, 0, len(last), rule.number), *last]
    code.append((_RETURN, 0, 0, _ALLOW))
    rows = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in code))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(rows)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
