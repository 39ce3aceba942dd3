"""What a line's data (images/<line>/line.bzl) says, read without Bazel, at any commit.

The files are data in Starlark, which Python's own grammar covers; nothing is evaluated. Only what a release is held
against is read: name, release, base and steps.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from releases.tag import Tag
from tools.cli.errors import UserError

# A file's bytes by its path from the root of the tree, None where there is none.
Reader = Callable[[str], bytes | None]


@dataclass(frozen=True)
class StepData:
    """A step of line.bzl."""

    number: int
    name: str
    evidence: str


@dataclass(frozen=True)
class LineData:
    """A line: `release` is the N of its next release, `base` is name, version and commit, as its label has them."""

    name: str
    release: int
    base: str
    steps: tuple[StepData, ...]

    def tag(self, number: int | None = None) -> Tag:
        """The tag of release `number`, of the next one by default."""
        name, version, _ = self.base.split(" ")
        return Tag(self.name, name + version, self.release if number is None else number)


def path(line: str) -> str:
    """The path of a line's data."""
    return f"images/{line}/line.bzl"


def read(reader: Reader, line: str) -> LineData:
    """Reads a line's data. Raises UserError where there is none, or it is not the literal data expected."""
    where = path(line)
    module = parse(reader, where)
    call = _line_call(module, where)
    base = _arguments(_resolve(reader, module, _argument(call, "base", where), where))
    named = [_literal(base.get(key), str, where, f"base.{key}") for key in ("name", "version", "commit")]
    name = _literal(_argument(call, "name", where), str, where, "name")
    if name != line:
        raise UserError(f"{where}: its name is {name!r}, its folder's {line!r}: make both the same")
    return LineData(
        name,
        _literal(_argument(call, "release", where), int, where, "release"),
        " ".join(named),
        tuple(_steps(_argument(call, "steps", where), where)),
    )


def with_release(text: str, line: str, release: int) -> str:
    """The text of a line.bzl with another release number; every other character stays."""
    where = path(line)
    node = _argument(_line_call(_module(text, where), where), "release", where)
    _literal(node, int, where, "release")
    lines = text.split("\n")
    # ast counts columns in UTF-8 bytes.
    raw = lines[node.lineno - 1].encode()
    lines[node.lineno - 1] = (raw[: node.col_offset] + str(release).encode() + raw[node.end_col_offset :]).decode()
    return "\n".join(lines)


def parse(reader: Reader, where: str) -> ast.Module:
    """The syntax tree of a Starlark file. Raises UserError where it is missing or no data that Python can read."""
    data = reader(where)
    if data is None:
        raise UserError(f"{where}: does not exist")
    try:
        return _module(data.decode(), where)
    except UnicodeDecodeError:
        raise UserError(f"{where}: is not UTF-8") from None


def loads(module: ast.Module, package: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields for each load() of this repository: the file's path, and local name to name there."""
    for node in module.body:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "load":
            continue
        texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if not texts or texts[0].startswith("@"):
            continue
        folder, _, file = texts[0].rpartition(":")
        folder = folder.removeprefix("//") if folder.startswith("//") else package
        names = {name: name for name in texts[1:]}
        for word in call.keywords:
            if word.arg and isinstance(word.value, ast.Constant):
                names[word.arg] = str(word.value.value)
        yield f"{folder}/{file}".lstrip("/"), names


def _module(text: str, where: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UserError(f"{where}:{line}: cannot be read as data: {getattr(error, 'msg', error)}") from None


def _line_call(module: ast.Module, where: str) -> ast.Call:
    calls = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) == "line"
    ]
    if len(calls) != 1:
        raise UserError(f"{where}: expected one NAME = line(...), found {len(calls)}")
    return calls[0]


def _resolve(reader: Reader, module: ast.Module, node: ast.expr, where: str) -> ast.Call:
    if isinstance(node, ast.Name):
        for file, names in loads(module, where.rpartition("/")[0]):
            if node.id in names:
                loaded = parse(reader, file)
                return _resolve(reader, loaded, ast.Name(names[node.id]), file)
        for assign in module.body:
            targets = assign.targets if isinstance(assign, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == node.id for target in targets):
                assert isinstance(assign, ast.Assign)
                return _resolve(reader, module, assign.value, where)
    if isinstance(node, ast.Call):
        return node
    raise UserError(f"{where}: base: expected the name of a pin that a file loaded here defines as a struct")


def _steps(node: ast.expr, where: str) -> Iterator[StepData]:
    if not isinstance(node, ast.List):
        raise UserError(f"{where}:{node.lineno}: steps: expected a list of step(...)")
    for item in node.elts:
        if not isinstance(item, ast.Call) or _called(item) != "step":
            raise UserError(f"{where}:{item.lineno}: steps: expected step(...)")
        given = _arguments(item)
        yield StepData(
            _literal(given.get("number"), int, where, "step's number"),
            _literal(given.get("name"), str, where, "step's name"),
            _literal(given.get("evidence"), str, where, "step's evidence"),
        )


def _argument(call: ast.Call, name: str, where: str) -> ast.expr:
    found = _arguments(call).get(name)
    if found is None:
        raise UserError(f"{where}:{call.lineno}: line(...) has no {name} = ...")
    return found


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    return {word.arg: word.value for word in call.keywords if word.arg}


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _literal(node: ast.expr | None, kind: type, where: str, what: str) -> Any:
    if not isinstance(node, ast.Constant) or type(node.value) is not kind:
        line = f":{node.lineno}" if node is not None else ""
        raise UserError(f"{where}{line}: {what}: expected a literal {'number' if kind is int else 'string'}")
    return node.value
