"""Profiles from their files: TOML, read strictly."""

import difflib
import hashlib
import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from serving.profiles import fragments, values
from serving.profiles.model import (
    SCHEMA,
    Container,
    FirstStart,
    Kind,
    Knob,
    Mount,
    Needs,
    Profile,
    Role,
    Serve,
    Start,
)
from tools.cli.errors import UserError

_KNOB_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")
_ALONE: tuple[Role, ...] = ("bind", "dp", "gpus", "image", "key", "model", "name", "offload", "port", "tp")


class ProfileError(UserError):
    """A profile that cannot be used: one line with its file, the key and what was expected."""


def load(name: str, root: Path | None = None) -> Profile:
    """The profile of a line: the one of the source tree at `root`, where it has any, else the one that came with this.

    Raises UserError where there is none, or it is broken.
    """
    known = _files(root)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{name!r} is no profile; {hint}there are {', '.join(known)}")
    profile = parse(known[name].read_text(encoding="utf-8"), f"{name}.toml")
    if profile.line != name:
        raise ProfileError(f"{name}.toml: line: expected {name!r}, as the file is named, found {profile.line!r}")
    return profile


def parse(text: str, file: str) -> Profile:
    """Reads a profile. Raises ProfileError, which names `file` and the key."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{file}: is no TOML: {error}") from None
    whole = _Table(file, "", data)
    if (schema := whole.take("schema", _text)) != SCHEMA:
        raise ProfileError(f"{file}: schema: expected {SCHEMA!r}, found {schema!r}")
    line, title = whole.take("line", _text), whole.take("title", _text)
    inside = whole.table("container")
    container = Container(
        port=inside.take("port", _integer),
        model=inside.take("model", _text),
        shared_memory_gib=inside.take("shared_memory_gib", _integer),
        ulimits=inside.take("ulimits", _each(_integer)),
    )
    inside.end()
    server = whole.table("serve")
    serve = Serve(flags=server.take("flags", _list(_text)), environment=server.take("environment", _each(_text)))
    server.end()
    asked = whole.table("needs")
    needs = Needs(
        model_type=asked.take("model_type", _text),
        compute_capabilities=asked.take("compute_capabilities", _list(_text)),
        driver=asked.take("driver", _integer),
    )
    asked.end()
    usual = whole.table("start")
    start = Start(*_seconds(usual))
    usual.end()
    first_start = _first_start(whole.table("first_start")) if "first_start" in data else None
    table = whole.table("knobs")
    knobs = {name: _knob(name, table.table(name)) for name in list(table.data)}
    whole.end()
    digest = hashlib.sha256(text.encode()).hexdigest()
    profile = Profile(SCHEMA, line, title, container, serve, needs, start, first_start, knobs, digest)
    _check(profile, file)
    return profile


def _files(root: Path | None) -> dict[str, Traversable]:
    """The files of all profiles by name."""
    folder: Traversable = resources.files("serving.profiles")
    if root is not None and (theirs := root / "serving/profiles").is_dir():
        folder = theirs
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


_Reader = Callable[["_Table", str, Any], Any]


class _Table:
    """A table of a TOML file whose keys are taken one by one, so that none is left unread."""

    def __init__(self, file: str, where: str, data: Mapping[str, Any]) -> None:
        self.file, self.where, self.data, self._seen = file, where, data, set[str]()

    def take(self, key: str, reader: _Reader, default: Any = ...) -> Any:
        self._seen.add(key)
        if key not in self.data:
            if default is ...:
                raise self.problem(key, "is missing")
            return default
        return reader(self, key, self.data[key])

    def table(self, key: str) -> "_Table":
        found = self.take(key, _table)
        return _Table(self.file, self._path(key), found)

    def end(self) -> None:
        for key in self.data:
            if key not in self._seen:
                near = difflib.get_close_matches(key, self._seen, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise self.problem(key, f"unknown key; {hint}there are {', '.join(sorted(self._seen))}")

    def problem(self, key: str, words: str) -> ProfileError:
        return ProfileError(f"{self.file}: {self._path(key)}: {words}")

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key


def _typed(kind: type | tuple[type, ...], words: str) -> _Reader:
    def read(table: _Table, key: str, value: Any) -> Any:
        # bool is a subclass of int.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise table.problem(key, f"expected {words}, found {value!r}")
        return value

    return read


_text = _typed(str, "a string")
_boolean = _typed(bool, "true or false")
_integer = _typed(int, "an integer")
_float = _typed((int, float), "a number")
_table = _typed(dict, "a table")


def _list(one: _Reader) -> _Reader:
    def read(table: _Table, key: str, value: Any) -> Any:
        if not isinstance(value, list):
            raise table.problem(key, f"expected a list, found {value!r}")
        return tuple(one(table, f"{key}[{index}]", item) for index, item in enumerate(value))

    return read


def _each(one: _Reader) -> _Reader:
    def read(table: _Table, key: str, value: Any) -> Any:
        return {name: one(table, f"{key}.{name}", item) for name, item in _table(table, key, value).items()}

    return read


def _one_of(literal: Any) -> _Reader:
    def read(table: _Table, key: str, value: Any) -> Any:
        known = typing.get_args(literal)
        if value not in known:
            raise table.problem(key, f"expected one of {', '.join(known)}, found {value!r}")
        return value

    return read


def _value(kind: Kind) -> _Reader:
    words = _list(_text)
    readers = {"boolean": _boolean, "integer": _integer, "number": _float, "words": words, "devices": words}
    return readers.get(kind, _text)


def _mount(table: _Table, key: str, value: Any) -> Mount:
    inside = _Table(table.file, table._path(key), _table(table, key, value))
    mount = Mount(inside.take("target", _text), inside.take("write", _boolean, False))
    inside.end()
    if not mount.target.startswith("/"):
        raise inside.problem("target", f"expected an absolute path, found {mount.target!r}")
    return mount


def _seconds(table: _Table) -> tuple[int, int]:
    expected, deadline = table.take("expected_seconds", _integer), table.take("deadline_seconds", _integer)
    if not 0 < expected < deadline:
        raise table.problem("deadline_seconds", f"expected more than expected_seconds, {expected}, found {deadline}")
    return expected, deadline


def _first_start(table: _Table) -> FirstStart:
    first = FirstStart(*_seconds(table), at_most=table.take("at_most", _each(_float)))
    table.end()
    return first


def _knob(name: str, table: _Table) -> Knob:
    if not _KNOB_NAME.fullmatch(name):
        raise ProfileError(f"{table.file}: {table.where}: expected capital letters, digits and _ as a knob's name")
    kind: Kind = table.take("kind", _one_of(Kind))
    knob = Knob(
        name=name,
        kind=kind,
        meaning=table.take("meaning", _text),
        unit=table.take("unit", _text, ""),
        default=table.take("default", _value(kind), None),
        required=table.take("required", _boolean, False),
        minimum=table.take("minimum", _float, None),
        maximum=table.take("maximum", _float, None),
        choices=table.take("choices", _list(_value(kind)), ()),
        refused=table.take("refused", _each(_text), {}),
        on=table.take("on", _text, "1"),
        off=table.take("off", _value(kind), None),
        needs=table.take("needs", _list(_text), ()),
        implies=table.take("implies", _each(_each(_text)), {}),
        presets=table.take("presets", _each(_text), {}),
        role=table.take("role", _one_of(Role), None),
        flag=table.take("flag", _text, None),
        json=table.take("json", _each(_table), {}),
        environment=table.take("environment", _text, None),
        mount=table.take("mount", _mount, None),
    )
    table.end()
    if (kind == "choice") != bool(knob.choices) and kind != "integer":
        raise table.problem("choices", "expected where kind is choice or integer, and only there")
    if kind == "switch" and knob.default not in ("0", knob.on):
        raise table.problem("default", f"expected 0 or {knob.on}, found {knob.default!r}")
    if knob.default is not None and kind != "switch":
        try:
            values.check(knob, knob.default)
        except values.ValueProblemError as error:
            raise table.problem("default", f"{values.show(knob.default)}: {error}") from None
    for flag in (*knob.json, *([knob.flag] if knob.flag else [])):
        if not _FLAG.fullmatch(flag):
            raise table.problem("flag", f"expected --lower-case-words, found {flag!r}")
    return knob


def _check(profile: Profile, file: str) -> None:
    """What holds between knobs."""
    for name, knob in profile.knobs.items():
        for key, others in _mentioned(knob):
            for other in others:
                if other not in profile.knobs:
                    raise ProfileError(f"{file}: knobs.{name}.{key}: {other} is no knob")
        for key, settings in [("presets", knob.presets), *((f"implies.{v}", s) for v, s in knob.implies.items())]:
            for other, text in settings.items():
                try:
                    values.parse(profile.knobs[other], text)
                except values.ValueProblemError as error:
                    raise ProfileError(f"{file}: knobs.{name}.{key}.{other}: {text!r}: {error}") from None
    for name, highest in (profile.first_start.at_most if profile.first_start else {}).items():
        if name not in profile.knobs or profile.knobs[name].kind not in ("integer", "number"):
            raise ProfileError(f"{file}: first_start.at_most: {name} is no knob with a number")
        try:
            values.check(profile.knobs[name], highest)
        except values.ValueProblemError as error:
            raise ProfileError(f"{file}: first_start.at_most.{name}: {highest}: {error}") from None
    for role in _ALONE:
        found = [knob.name for knob in profile.knobs.values() if knob.role == role]
        if len(found) != 1:
            raise ProfileError(f"{file}: knobs: expected one with role = {role!r}, found {', '.join(found) or 'none'}")


def _mentioned(knob: Knob) -> list[tuple[str, list[str]]]:
    return [
        ("needs", list(knob.needs)),
        ("presets", list(knob.presets)),
        ("implies", [other for settings in knob.implies.values() for other in settings]),
        ("json", [word for word in fragments.placeholders(knob.json) if word != "value"]),
    ]
